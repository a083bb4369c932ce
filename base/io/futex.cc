// SPDX-License-Identifier: Apache-2.0
#include "base/io/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace hpvm {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

int Operation(int operation, FutexScope scope) {
  return scope == FutexScope::kProcess ? operation | FUTEX_PRIVATE_FLAG : operation;
}

}  // namespace

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Duration limit, FutexScope scope) {
  const int64_t ns = std::max<int64_t>(limit.count(), 0);
  const timespec relative{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_futex, &word, Operation(FUTEX_WAIT, scope), expected, &relative, nullptr, 0);
}

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, FutexScope scope) {
  syscall(SYS_futex, &word, Operation(FUTEX_WAIT, scope), expected, nullptr, nullptr, 0);
}

void FutexWake(const std::atomic<uint32_t>& word, uint32_t count, FutexScope scope) {
  const uint32_t most = std::min<uint32_t>(count, std::numeric_limits<int32_t>::max());
  syscall(SYS_futex, &word, Operation(FUTEX_WAKE, scope), most, nullptr, nullptr, 0);
}

}  // namespace hpvm
