// SPDX-License-Identifier: Apache-2.0
// Decides which SPIR-V is accepted: lists of capabilities, extensions, extended instruction sets and instructions.
// Anything that is on no list is refused by name, with a specific reason where one is known.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_ALLOW_H_
#define HPVMD_COMPILER_FRONT_SPIRV_ALLOW_H_

#include "compiler/api/gpu_target.h"
#include "compiler/front/spirv/module.h"

namespace hpvm::spirv {

// Sets module.flavour from the capabilities.
void FindFlavour(Module& module, ModuleFaults& faults);
// Checks the whole module against the lists, and its capabilities against the device. Stops at the first fault.
void CheckAllowed(const Module& module, const GpuTarget& target, ModuleFaults& faults);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_ALLOW_H_
