// SPDX-License-Identifier: Apache-2.0
// What the calling thread is to the pool it works for.
#ifndef HPVMD_BACKENDS_CPU_POOL_THREAD_H_
#define HPVMD_BACKENDS_CPU_POOL_THREAD_H_

#include <atomic>
#include <cstdint>

#include "base/io/futex.h"

namespace hpvm::cpu {

// A command list that runs on the pool: launches that its threads share are first for others of the same list.
struct PoolFamily {
  std::atomic<bool> is_halted{false};  // Launches end early.
  std::atomic<uint32_t> sleeps{0};     // 1: the submitting thread sleeps or is about to; it waits on this.

  // Has the submitting thread look for work; to be called after a sequentially consistent store of some.
  void Wake() {
    if (sleeps.load(std::memory_order_seq_cst) != 0 && sleeps.exchange(0, std::memory_order_seq_cst) != 0) {
      FutexWake(sleeps, 1, FutexScope::kProcess);
    }
  }
};

struct PoolThread {
  uint32_t index = 0;            // A helper's number from 1; 0: a thread that submits.
  PoolFamily* family = nullptr;  // What this thread takes part in; null outside.
  // Grows by the time that this thread's launches were shared with others.
  uint64_t shared_ns = 0;
};

inline PoolThread& ThisPoolThread() {
  static thread_local PoolThread self;
  return self;
}

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_POOL_THREAD_H_
