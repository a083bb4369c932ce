// SPDX-License-Identifier: Apache-2.0
#include "base/processor_time.h"

#include <time.h>

namespace hpvm {

Duration ProcessorTimeOf(int pid) {
  // Computes the clock id that clock_getcpuclockid returns, which first makes a system call that the filters refuse.
  constexpr clockid_t kProcessClock = 2;
  timespec used{};
  if (clock_gettime(static_cast<clockid_t>(~static_cast<unsigned>(pid) << 3) | kProcessClock, &used) != 0) {
    return Duration(0);
  }
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace hpvm
