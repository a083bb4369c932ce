// SPDX-License-Identifier: Apache-2.0
// The limits on what a module makes others do: sizes of values, constants and variables, nesting, and code once calls
// are inlined.
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
  uint32_t first = 0, last = 0;  // OpFunction and OpFunctionEnd, in Module::instructions.
  std::vector<uint32_t> calls;   // Indices of functions, once a call.
};

struct Structure {
  std::vector<Function> functions;
  std::vector<uint32_t> function_of;  // By id: index + 1; 0: no function.
  uint64_t private_bytes = 0;         // Function and Private storage of all functions.
  uint64_t local_bytes = 0;           // Workgroup storage.

  // The functions that `index` reaches, itself included.
  std::vector<bool> ReachedFrom(uint32_t index) const;
};

// Stops at the first fault.
Structure CheckStructure(const Module& module, const Types& types, const GpuTarget& target, Faults& faults);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_STRUCTURE_H_
