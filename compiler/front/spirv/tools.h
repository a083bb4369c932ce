// SPDX-License-Identifier: Apache-2.0
// SPIRV-Tools, behind our own limits.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_TOOLS_H_
#define HPVMD_COMPILER_FRONT_SPIRV_TOOLS_H_

#include "compiler/api/gpu_target.h"
#include "compiler/front/spirv/module.h"

namespace hpvm::spirv {

// Runs the validator for the environment of the device.
void ValidateWithTools(const Module& module, const GpuTarget& target, Faults& faults);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_TOOLS_H_
