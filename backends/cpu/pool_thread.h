// SPDX-License-Identifier: Apache-2.0
// State of the calling thread in relation to its pool.
#ifndef HPVMD_BACKENDS_CPU_POOL_THREAD_H_
#define HPVMD_BACKENDS_CPU_POOL_THREAD_H_

#include <atomic>
#include <cstdint>

#include "base/io/futex.h"

namespace hpvm::cpu {

// A command list that runs on the pool: launches that its threads share are first offered to others of the same list.
struct PoolFamily {
  std::atomic<bool> is_halted{false};  // Launches end early.
  std::atomic<uint32_t> sleeps{0};     // 1: the submitting thread sleeps or is about to; it waits on this word.

  // Wakes the submitting thread to look for work; call after a sequentially consistent store that publishes work.
  void Wake() {
    if (sleeps.load(std::memory_order_seq_cst) != 0 && sleeps.exchange(0, std::memory_order_seq_cst) != 0) {
      FutexWake(sleeps, 1, FutexScope::kProcess);
    }
  }
};

struct PoolThread {
  uint32_t index = 0;            // A helper's number from 1; 0 for a submitting thread.
  PoolFamily* family = nullptr;  // The family in which this thread takes part; null outside.
  // Increases by the time for which this thread's launches were shared with others.
  uint64_t shared_ns = 0;
};

inline PoolThread& ThisPoolThread() {
  static thread_local PoolThread self;
  return self;
}

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_POOL_THREAD_H_
