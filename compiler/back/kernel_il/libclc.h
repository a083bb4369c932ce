// SPDX-License-Identifier: Apache-2.0
// OpenCL's built-in functions for NVIDIA's processors, as LLVM bitcode that is part of this program.
#ifndef HPVMD_COMPILER_BACK_KERNEL_IL_LIBCLC_H_
#define HPVMD_COMPILER_BACK_KERNEL_IL_LIBCLC_H_

#include <string_view>

namespace hpvm::kernel_il {

// libclc's own. Like all bitcode, followed by a zero byte.
std::string_view LibclcBitcode();
// LLVM's assembly of what libclc takes from NVIDIA's library, which is not free to hand on.
std::string_view LibclcRest();

}  // namespace hpvm::kernel_il

#endif  // HPVMD_COMPILER_BACK_KERNEL_IL_LIBCLC_H_
