// SPDX-License-Identifier: Apache-2.0
// Registry of all backends; the only place that names every one.
#ifndef HPVMD_BACKENDS_REGISTRY_H_
#define HPVMD_BACKENDS_REGISTRY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/device_family.h"

namespace hpvm::backends {

// Returns the family of "opencl", or of one of its devices ("opencl:1"); null when there is none.
const DeviceFamily* FindFamily(std::string_view backend);
bool HasDriver(std::string_view backend);

// Names: "null", "interp", "cpu", "opencl", "vulkan"; the last two may be followed by a device's number, "opencl:1".
// Returns kNotFound for other names, with the list, and for devices that do not exist, with the number of devices.
StatusOr<std::unique_ptr<Device>> CreateDevice(std::string_view backend, Hub& hub, const DeviceOptions& options);
std::vector<std::string_view> BackendNames();
// Lists a backend's devices here, with names for CreateDevice: {"cpu"}, {"opencl:0", "opencl:1"}. Loads drivers.
StatusOr<std::vector<std::string>> ListDevices(std::string_view backend);
// Returns the driver's name and version and the device's name, whose change invalidates cached binaries. Returns
// kNotFound for names that are not a device with a driver.
StatusOr<std::string> DriverIdentity(const std::string& device);

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_REGISTRY_H_
