// SPDX-License-Identifier: Apache-2.0
// Lists of devices as configurations write them.
#ifndef HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_
#define HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/device_family.h"
#include "base/status.h"

namespace hpvm::server {

// The names of a list with commas, without spaces around them.
std::vector<std::string> SplitNames(std::string_view list);

// The families that discovery asks, in the order in which their devices come: those that `backends` (the
// configuration's devices.backends) names, or all of them for "auto".
StatusOr<std::vector<std::string>> FamiliesOf(std::string_view backends);

// How a device may be named: "cpu, opencl, opencl:N, vulkan, vulkan:N".
std::string DeviceNameForms();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_
