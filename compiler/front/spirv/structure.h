// SPDX-License-Identifier: Apache-2.0
// Enforces the limits on the work that a module causes in later stages: sizes of values, constants and variables,
// nesting, and code size after inlining.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_STRUCTURE_H_
#define HPVMD_COMPILER_FRONT_SPIRV_STRUCTURE_H_

#include <cstdint>
#include <vector>

#include "compiler/api/gpu_target.h"
#include "compiler/front/spirv/module.h"
#include "compiler/front/spirv/types.h"

namespace hpvm::spirv {

struct Function {
  uint32_t id = 0;
  uint32_t first = 0, last = 0;  // Indices of OpFunction and OpFunctionEnd in Module::instructions.
  std::vector<uint32_t> calls;   // Indices of the called functions, one per call.
};

struct Structure {
  std::vector<Function> functions;
  std::vector<uint32_t> function_of;  // Indexed by id: index of the function + 1; 0 when the id is no function.
  uint64_t private_bytes = 0;         // Size of Function and Private storage of all functions.
  uint64_t local_bytes = 0;           // Size of Workgroup storage.

  // Returns the functions that `index` reaches, including itself.
  std::vector<bool> ReachedFrom(uint32_t index) const;
};

// Stops at the first fault.
Structure CheckStructure(const Module& module, const Types& types, const GpuTarget& target, ModuleFaults& faults);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_STRUCTURE_H_
