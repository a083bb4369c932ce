// SPDX-License-Identifier: Apache-2.0
// Assembles SPIR-V from text, for tests.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_TESTING_ASSEMBLE_H_
#define HPVMD_COMPILER_FRONT_SPIRV_TESTING_ASSEMBLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/api/gpu_target.h"

namespace hpvm::spirv {

// Aborts the test program with the assembler's message when `text` is not valid. `minor` is the minor version of
// SPIR-V 1.
std::vector<uint8_t> Assemble(const std::string& text, int minor = 3);

// Returns a device with every feature of both Vulkan and OpenCL devices.
GpuTarget FullTarget();

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_TESTING_ASSEMBLE_H_
