// SPDX-License-Identifier: Apache-2.0
// Kernel-flavoured SPIR-V in the forms that OpenCL drivers without clCreateProgramWithIL take: SPIR bitcode (PoCL), and
// PTX (NVIDIA), which goes through LLVM's back end with libclc's built-in functions linked in.
#ifndef HPVMD_COMPILER_BACK_KERNEL_IL_KERNEL_IL_H_
#define HPVMD_COMPILER_BACK_KERNEL_IL_KERNEL_IL_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm::kernel_il {

// Loads the translator from beside this program, since a compile child may open no file. Without it the other functions
// give kFailedPrecondition; the status says what is missing.
Status PrepareKernelIl();

// LLVM 15 bitcode for spir64. `spirv` has been through spirv::ReadSpirv. kInvalidArgument: the translator refuses it.
StatusOr<std::vector<uint8_t>> SpirvToBitcode(std::span<const uint8_t> spirv);

struct PtxOptions {
  std::string entry;
  std::string arch;                        // "sm_90".
  std::array<uint32_t, 3> group{0, 0, 0};  // Work items, where the kernel fixes them.
};
// kInvalidArgument: a built-in function that libclc lacks, by name, or what the translator refuses.
StatusOr<std::string> SpirvToPtx(std::span<const uint8_t> spirv, const PtxOptions& options);

}  // namespace hpvm::kernel_il

#endif  // HPVMD_COMPILER_BACK_KERNEL_IL_KERNEL_IL_H_
