// SPDX-License-Identifier: Apache-2.0
// SPIR-V from its text, for tests.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_TESTING_ASSEMBLE_H_
#define HPVMD_COMPILER_FRONT_SPIRV_TESTING_ASSEMBLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/api/gpu_target.h"

namespace hpvm::spirv {

// Ends the test program with the assembler's message on what is no SPIR-V. `minor` is the version behind "1.".
std::vector<uint8_t> Assemble(const std::string& text, int minor = 3);

// A device that has everything, as Vulkan and as OpenCL devices say it.
GpuTarget FullTarget();

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_TESTING_ASSEMBLE_H_
