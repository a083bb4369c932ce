// SPDX-License-Identifier: Apache-2.0
// About how quick the processor is, for who has measured nothing yet: good within a factor of two or so.
#ifndef HPVMD_BACKENDS_CPU_SPEED_H_
#define HPVMD_BACKENDS_CPU_SPEED_H_

#include <cstdint>

namespace hpvm::cpu {

struct ProcessorSpeed {
  double operations_per_second = 0;  // 32-bit arithmetic in vectors.
  double bytes_per_second = 0;       // Of memory.
  double launch_ns = 0;              // From one command's end to the next one's start.
};
// Of so many threads together. Takes some 20 µs.
ProcessorSpeed SpeedOf(uint32_t threads);

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_SPEED_H_
