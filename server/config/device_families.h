// SPDX-License-Identifier: Apache-2.0
// The families of devices that the daemon knows, and lists of devices as configurations write them.
#ifndef HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_
#define HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hpvm {

inline constexpr std::array<const char*, 3> kDeviceFamilies = {"cpu", "opencl", "vulkan"};

// "vulkan" of "vulkan:1".
inline std::string_view FamilyOf(std::string_view name) { return name.substr(0, name.find(':')); }

// The names of a list with commas, without spaces around them.
std::vector<std::string> SplitNames(std::string_view list);

// The families that discovery asks, in the order in which their devices come: those that `backends` (the
// configuration's devices.backends) names, or all of them for "auto".
StatusOr<std::vector<std::string>> FamiliesOf(std::string_view backends);

}  // namespace hpvm

#endif  // HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_
