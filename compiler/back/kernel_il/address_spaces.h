// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_BACK_KERNEL_IL_ADDRESS_SPACES_H_
#define HPVMD_COMPILER_BACK_KERNEL_IL_ADDRESS_SPACES_H_

#include <cstdint>
#include <span>
#include <vector>

namespace hpvm::kernel_il {

// The module with constant memory as global memory. Buffers are in global memory whatever a kernel calls them, and
// NVIDIA's processors number their address spaces as SPIR does but for the constant one, so that nothing else has to be
// renumbered. Constants of the module's own keep their content.
std::vector<uint8_t> ConstantsToGlobal(std::span<const uint8_t> spirv);

}  // namespace hpvm::kernel_il

#endif  // HPVMD_COMPILER_BACK_KERNEL_IL_ADDRESS_SPACES_H_
