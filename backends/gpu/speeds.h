// SPDX-License-Identifier: Apache-2.0
// What a device behind a driver can be expected to do, from the facts that its driver tells: where plans start from
// until something has been measured. Measuring at the start would cost every process that opens the device.
//
// The constants are what was measured on the devices of docs/GPU.md; for others they give the order of magnitude.
#ifndef HPVMD_BACKENDS_GPU_SPEEDS_H_
#define HPVMD_BACKENDS_GPU_SPEEDS_H_

#include <cstdint>

#include "backends/contract/device.h"

namespace hpvm::gpu {

struct SpeedFacts {
  double clock_hz = 0;              // 0: unknown.
  uint32_t lanes_per_unit = 0;      // 32-bit operations that a compute unit begins in a cycle; 0: unknown.
  bool has_stacked_memory = false;  // HBM, as data-centre GPUs have.
  bool shares_memory = false;       // With the host.
  double launch_ns = 0;
};

// Fills in DeviceInfo's speeds; compute_units and is_emulated are set. What cannot be told stays 0.
void EstimateSpeeds(const SpeedFacts& facts, DeviceInfo* info);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_SPEEDS_H_
