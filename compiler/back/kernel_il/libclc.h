// SPDX-License-Identifier: Apache-2.0
// OpenCL's built-in functions for NVIDIA's processors, as LLVM bitcode that is embedded in this program.
#ifndef HPVMD_COMPILER_BACK_KERNEL_IL_LIBCLC_H_
#define HPVMD_COMPILER_BACK_KERNEL_IL_LIBCLC_H_

#include <string_view>

namespace hpvm::kernel_il {

// Returns libclc's bitcode. A zero byte follows it, as LLVM's bitcode reader requires.
std::string_view LibclcBitcode();
// Returns LLVM assembly of the functions that libclc takes from NVIDIA's library, which may not be redistributed.
std::string_view LibclcRest();

}  // namespace hpvm::kernel_il

#endif  // HPVMD_COMPILER_BACK_KERNEL_IL_LIBCLC_H_
