// SPDX-License-Identifier: Apache-2.0
// Waiting for a word to change, with a time limit, also between processes that share its memory.
#ifndef HPVMD_BASE_IO_FUTEX_H_
#define HPVMD_BASE_IO_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace hpvm {

enum class FutexScope : uint8_t {
  kProcess,  // Waiters and wakers are threads of this process.
  kShared,   // Of any process that maps the memory; who only waits may map it read-only.
};

// Blocks while `word` holds `expected`, until woken or for `limit` at most. May return early. Any thread.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Duration limit, FutexScope scope);
// As above, without a limit.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, FutexScope scope);
// Wakes `count` of those who wait for `word`. Any thread; a system call also when nobody waits.
void FutexWake(const std::atomic<uint32_t>& word, uint32_t count, FutexScope scope);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_FUTEX_H_
