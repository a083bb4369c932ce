// SPDX-License-Identifier: Apache-2.0
// What of SPIR-V is taken: lists of capabilities, extensions, extended instruction sets and instructions. Whatever is
// on none is refused by name, with the reason where one is known better than "not on the list".
#ifndef HPVMD_COMPILER_FRONT_SPIRV_ALLOW_H_
#define HPVMD_COMPILER_FRONT_SPIRV_ALLOW_H_

#include "compiler/api/gpu_target.h"
#include "compiler/front/spirv/module.h"

namespace hpvm::spirv {

// Sets module.flavour from the capabilities.
void FindFlavour(Module& module, Faults& faults);
// Checks everything against the lists, and the capabilities against the device. Stops at the first fault.
void CheckAllowed(const Module& module, const GpuTarget& target, Faults& faults);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_ALLOW_H_
