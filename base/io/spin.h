// SPDX-License-Identifier: Apache-2.0
// Busy-waiting for events that take less time than a sleep.
#ifndef HPVMD_BASE_IO_SPIN_H_
#define HPVMD_BASE_IO_SPIN_H_

#include "base/clock.h"

namespace hpvm {

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done` returns true, for at most about `limit`; returns the last result of `done`.
template <typename Done>
bool SpinUntil(Duration limit, const Done& done) {
  const Time until = RealClock().Now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) {
        return true;
      }
      Pause();
    }
  } while (RealClock().Now() < until);
  return done();
}

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_SPIN_H_
