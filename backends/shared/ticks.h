// SPDX-License-Identifier: Apache-2.0
// Ticks is a counter cheap enough to read at every command boundary: the time-stamp counter if it is invariant
// (measured: 10 ns against 25 for clock_gettime), otherwise nanoseconds of CLOCK_MONOTONIC. Its unit is unknown:
// intervals are converted by the clock readings around them.
#ifndef HPVMD_BACKENDS_SHARED_TICKS_H_
#define HPVMD_BACKENDS_SHARED_TICKS_H_

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace hpvm::backends {

class Ticks {
 public:
  Ticks();
  uint64_t Now() const {
#if defined(__x86_64__)
    if (invariant_) {
      return __rdtsc();
    }
#endif
    return MonotonicNs();
  }
  // Measured over a fraction of a millisecond at construction: good for estimates, not for records.
  double ns_per_tick() const { return ns_per_tick_; }

  static uint64_t MonotonicNs();

 private:
  bool invariant_ = false;
  double ns_per_tick_ = 1;
};

// Returns the process's counter.
const Ticks& ProcessTicks();

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_TICKS_H_
