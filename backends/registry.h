// SPDX-License-Identifier: Apache-2.0
// The one place that names every backend.
#ifndef HPVMD_BACKENDS_REGISTRY_H_
#define HPVMD_BACKENDS_REGISTRY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/device_family.h"

namespace hpvm::backends {

// The family of "opencl", or of one of its devices ("opencl:1"). Null: there is none.
const DeviceFamily* FindFamily(std::string_view backend);
bool HasDriver(std::string_view backend);

// Names: "null", "interp", "cpu", "opencl", "vulkan"; the last two may be followed by which of their devices,
// "opencl:1". kNotFound for others, with the list, and for devices that do not exist, with how many there are.
StatusOr<std::unique_ptr<Device>> CreateDevice(std::string_view backend, Hub& hub, const DeviceOptions& options);
std::vector<std::string_view> BackendNames();
// The devices a backend has here, as CreateDevice takes them: {"cpu"}, {"opencl:0", "opencl:1"}. Loads drivers.
StatusOr<std::vector<std::string>> ListDevices(std::string_view backend);
// The driver's name and version, the device's name: what invalidates kept binaries when it changes. kNotFound for names
// of no device with a driver.
StatusOr<std::string> DriverIdentity(const std::string& device);

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_REGISTRY_H_
