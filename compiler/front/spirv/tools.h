// SPDX-License-Identifier: Apache-2.0
// Runs SPIRV-Tools on modules that are within our own limits.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_TOOLS_H_
#define HPVMD_COMPILER_FRONT_SPIRV_TOOLS_H_

#include "compiler/api/gpu_target.h"
#include "compiler/front/spirv/module.h"

namespace hpvm::spirv {

// Runs the validator for the device's environment.
void ValidateWithTools(const Module& module, const GpuTarget& target, ModuleFaults& faults);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_TOOLS_H_
