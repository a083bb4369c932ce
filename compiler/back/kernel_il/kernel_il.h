// SPDX-License-Identifier: Apache-2.0
// Translates kernel-flavoured SPIR-V into the forms that OpenCL drivers without clCreateProgramWithIL take: SPIR
// bitcode (PoCL), and PTX (NVIDIA), which goes through LLVM's back end with libclc's built-in functions linked in.
#ifndef HPVMD_COMPILER_BACK_KERNEL_IL_KERNEL_IL_H_
#define HPVMD_COMPILER_BACK_KERNEL_IL_KERNEL_IL_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm::kernel_il {

// Loads the translator from the folder of this program, because a compile child may not open files. When it fails, its
// status says what is missing, and the other functions return kFailedPrecondition.
Status PrepareKernelIl();

// Returns LLVM 15 bitcode for spir64. `spirv` must have been through spirv::ReadSpirv. Returns kInvalidArgument when
// the translator refuses it.
StatusOr<std::vector<uint8_t>> SpirvToBitcode(std::span<const uint8_t> spirv);

struct PtxOptions {
  std::string entry;
  std::string arch;                        // "sm_90".
  std::array<uint32_t, 3> group{0, 0, 0};  // Work items per group, where the kernel fixes them; else 0.
};
// Returns kInvalidArgument when libclc lacks a built-in function, which the message names, or the translator refuses
// the module.
StatusOr<std::string> SpirvToPtx(std::span<const uint8_t> spirv, const PtxOptions& options);

}  // namespace hpvm::kernel_il

#endif  // HPVMD_COMPILER_BACK_KERNEL_IL_KERNEL_IL_H_
