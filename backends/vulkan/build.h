// SPDX-License-Identifier: Apache-2.0
// The Vulkan side of backends/contract/driver_builder.h.
#ifndef HPVMD_BACKENDS_VULKAN_BUILD_H_
#define HPVMD_BACKENDS_VULKAN_BUILD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "backends/contract/driver_builder.h"
#include "base/status.h"

namespace hpvm {

// Returns the index of the named device; kNotFound for other names.
StatusOr<uint32_t> VulkanDeviceIndex(std::string_view device);
// Implementations of DeviceFamily::build and identity.
StatusOr<DriverBinary> BuildForVulkan(const DriverBuild& build);
StatusOr<std::string> VulkanDriverIdentity(const std::string& device);

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_VULKAN_BUILD_H_
