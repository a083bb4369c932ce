// SPDX-License-Identifier: Apache-2.0
// Approximate speed of the processor, used before anything has been measured: accurate within a factor of about two.
#ifndef HPVMD_BACKENDS_CPU_SPEED_H_
#define HPVMD_BACKENDS_CPU_SPEED_H_

#include <cstdint>

namespace hpvm::cpu {

struct ProcessorSpeed {
  double operations_per_second = 0;  // 32-bit arithmetic in vectors.
  double bytes_per_second = 0;       // Speed of memory.
  double launch_ns = 0;              // From one command's end to the next one's start.
};
// Returns the speed of `threads` threads together. Takes about 20 µs.
ProcessorSpeed SpeedOf(uint32_t threads);

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_SPEED_H_
