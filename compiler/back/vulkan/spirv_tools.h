// SPDX-License-Identifier: Apache-2.0
// Runs SPIRV-Tools on emitted modules: the validator and the disassembler.
#ifndef HPVMD_COMPILER_BACK_VULKAN_SPIRV_TOOLS_H_
#define HPVMD_COMPILER_BACK_VULKAN_SPIRV_TOOLS_H_

#include <cstdint>
#include <span>

#include "base/status.h"

namespace hpvm::vulkan {

// Returns kInternal with the validator's message if the words are not a module for Vulkan `api_version` (12, 13).
Status ValidateSpirv(std::span<const uint32_t> words, uint32_t api_version);

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_SPIRV_TOOLS_H_
