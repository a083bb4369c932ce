// SPDX-License-Identifier: Apache-2.0
// Runs the probe of a known defect on a device.
#ifndef HPVMD_BACKENDS_GPU_DEFECT_PROBE_H_
#define HPVMD_BACKENDS_GPU_DEFECT_PROBE_H_

#include "backends/contract/device.h"
#include "backends/gpu/known_defects.h"

namespace hpvm::gpu {

// Returns true when the device takes the probe's kind of code.
bool Concerns(const DefectProbe& probe, const Device& device);
// Returns true when the device computes the probe correctly, or an error when it could not run: the driver refuses the
// kernel, or the device fails. The driver may also crash or hang, so call it only in processes with nothing to lose.
StatusOr<bool> ComputesRightly(const DefectProbe& probe, Device& device, Time deadline);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_DEFECT_PROBE_H_
