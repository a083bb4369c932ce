// SPDX-License-Identifier: Apache-2.0
// Waits for a word to change, with a time limit, also between processes that share its memory.
#ifndef HPVMD_BASE_IO_FUTEX_H_
#define HPVMD_BASE_IO_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace hpvm {

enum class FutexScope : uint8_t {
  kProcess,  // Waiters and wakers are threads of this process.
  // Waiters and wakers may be threads of any process that maps the memory; a pure waiter may map it read-only.
  kShared,
};

// Blocks while `word` holds `expected`, until woken, or for at most `limit`. May return early. Thread-safe.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Duration limit, FutexScope scope);
// As above, without a limit.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, FutexScope scope);
// Wakes at most `count` waiters on `word`. Thread-safe. Makes a system call even when there is no waiter.
void FutexWake(const std::atomic<uint32_t>& word, uint32_t count, FutexScope scope);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_FUTEX_H_
