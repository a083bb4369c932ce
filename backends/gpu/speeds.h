// SPDX-License-Identifier: Apache-2.0
// Estimates the speed of a device behind a driver from properties that its driver reports: the starting point of plans
// until something has been measured. Measuring at the start would slow down every process that opens the device.
//
// The constants were measured on the devices of docs/GPU.md; for others they give the order of magnitude.
#ifndef HPVMD_BACKENDS_GPU_SPEEDS_H_
#define HPVMD_BACKENDS_GPU_SPEEDS_H_

#include <cstdint>

#include "backends/contract/device.h"

namespace hpvm::gpu {

struct SpeedFacts {
  double clock_hz = 0;  // 0: unknown.
  // 32-bit operations that a compute unit issues per cycle; 0: unknown.
  uint32_t lanes_per_unit = 0;
  bool has_stacked_memory = false;  // HBM, as in data-centre GPUs.
  bool shares_memory = false;       // Shares memory with the host.
  double launch_ns = 0;
};

// Fills in DeviceInfo's speeds; compute_units and is_emulated must be set. Unknown speeds stay 0.
void EstimateSpeeds(const SpeedFacts& facts, DeviceInfo* info);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_SPEEDS_H_
