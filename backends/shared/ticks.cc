// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/ticks.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hpvm::backends {

Ticks::Ticks() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  invariant_ = __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#endif
  if (!invariant_) {
    return;
  }
  constexpr uint64_t kCalibrationNs = 200'000;
  const uint64_t start_ns = MonotonicNs();
  const uint64_t start = Now();
  uint64_t now_ns;
  do {
    now_ns = MonotonicNs();
  } while (now_ns - start_ns < kCalibrationNs);
  const uint64_t elapsed = Now() - start;
  if (elapsed == 0) {
    invariant_ = false;
    return;
  }
  ns_per_tick_ = static_cast<double>(now_ns - start_ns) / static_cast<double>(elapsed);
}

uint64_t Ticks::MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

const Ticks& ProcessTicks() {
  static const Ticks ticks;
  return ticks;
}

}  // namespace hpvm::backends
