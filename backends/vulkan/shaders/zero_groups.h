// SPDX-License-Identifier: Apache-2.0
// Zeroes group memory in shaders written by a tenant, because the data that the last kernel on a multiprocessor left
// there may be another tenant's. (Emitted code clears its own.)
#ifndef HPVMD_BACKENDS_VULKAN_SHADERS_ZERO_GROUPS_H_
#define HPVMD_BACKENDS_VULKAN_SHADERS_ZERO_GROUPS_H_

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace hpvm::vulkan {

// Returns `module` with a null initialiser at every variable in Workgroup storage that has none, for drivers with
// zeroInitializeWorkgroupMemory; empty when it has no such variable. Returns kInvalidArgument for input that is not a
// SPIR-V module.
StatusOr<std::vector<uint8_t>> ZeroGroupMemory(const std::vector<uint8_t>& module);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_SHADERS_ZERO_GROUPS_H_
