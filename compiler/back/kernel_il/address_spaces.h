// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_BACK_KERNEL_IL_ADDRESS_SPACES_H_
#define HPVMD_COMPILER_BACK_KERNEL_IL_ADDRESS_SPACES_H_

#include <cstdint>
#include <span>
#include <vector>

namespace hpvm::kernel_il {

// Returns the module with constant memory moved to global memory. Buffers are in global memory whatever a kernel calls
// them, and NVIDIA's processors number their address spaces as SPIR does except for the constant one, so nothing else
// has to be renumbered. The module's own constants keep their content.
std::vector<uint8_t> ConstantsToGlobal(std::span<const uint8_t> spirv);

}  // namespace hpvm::kernel_il

#endif  // HPVMD_COMPILER_BACK_KERNEL_IL_ADDRESS_SPACES_H_
