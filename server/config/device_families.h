// SPDX-License-Identifier: Apache-2.0
// Device lists in configurations.
#ifndef HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_
#define HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/device_family.h"
#include "base/status.h"

namespace hpvm::server {

// Returns the names of a comma-separated list, without spaces around them.
std::vector<std::string> SplitNames(std::string_view list);

// Returns the families to discover, in the order of their devices: those that `backends` (devices.backends) names, or
// all of them for "auto".
StatusOr<std::vector<std::string>> FamiliesOf(std::string_view backends);

// Checks a comma-separated list of families, ids ("vulkan:0"), UUIDs ("GPU-5fd4...") or bus addresses
// ("0000:3b:00.0"); it may be empty. kInvalidArgument names the entry that is none of these.
Status CheckDeviceNames(std::string_view list);

// Converts "GPU-5FD4..." and "5fd4..." to 32 hexadecimal digits; empty when the text is not a UUID.
std::string UuidOf(std::string_view text);
// Converts "00000000:3B:00.0" to "0000:3b:00.0"; empty when the text is not a bus address.
std::string BusOf(std::string_view text);

// Returns the forms of device names: "cpu, opencl, opencl:N, vulkan, vulkan:N".
std::string DeviceNameForms();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_DEVICE_FAMILIES_H_
