// SPDX-License-Identifier: Apache-2.0
#include "backends/registry.h"

#include <algorithm>
#include <iterator>

#include "backends/cpu/device.h"
#include "backends/interp/device.h"
#include "backends/null/device.h"
#include "backends/opencl/device.h"
#include "backends/vulkan/device.h"

namespace hpvm::backends {
namespace {

constexpr const DeviceFamily* kFamilies[] = {&kNullFamily, &kInterpFamily, &kCpuFamily, &kOpenClFamily, &kVulkanFamily};

Status Unknown(std::string_view backend) {
  std::string known;
  for (const DeviceFamily* family : kFamilies) {
    known += (known.empty() ? "\"" : ", \"") + std::string(family->name) + "\"";
  }
  return NotFound("Backend \"" + std::string(backend) + "\" does not exist; the backends are " + known + ".");
}

}  // namespace

const DeviceFamily* FindFamily(std::string_view backend) {
  const std::string_view name = FamilyOf(backend);
  const auto found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                  [&](const DeviceFamily* row) { return row->name == name; });
  // The only device of a family without a driver has the family's name.
  const bool exists = found != std::end(kFamilies) && ((*found)->has_driver() || name == backend);
  return exists ? *found : nullptr;
}

bool HasDriver(std::string_view backend) {
  const DeviceFamily* const family = FindFamily(backend);
  return family != nullptr && family->has_driver();
}

std::vector<std::string_view> BackendNames() {
  std::vector<std::string_view> names;
  for (const DeviceFamily* family : kFamilies) {
    names.push_back(family->name);
  }
  return names;
}

StatusOr<std::unique_ptr<Device>> CreateDevice(std::string_view backend, Hub& hub, const DeviceOptions& options) {
  const DeviceFamily* const family = FindFamily(backend);
  return family != nullptr ? family->open(backend, hub, options) : Unknown(backend);
}

StatusOr<std::vector<std::string>> ListDevices(std::string_view backend) {
  const DeviceFamily* const family = FindFamily(backend);
  if (family == nullptr || family->name != backend) {
    return Unknown(backend);
  }
  return family->has_driver() ? family->list() : std::vector<std::string>{std::string(backend)};
}

StatusOr<std::string> DriverIdentity(const std::string& device) {
  const DeviceFamily* const family = FindFamily(device);
  if (family == nullptr || !family->has_driver()) {
    return NotFound("\"" + device + "\" is not the name of a device with a driver.");
  }
  return family->identity(device);
}

}  // namespace hpvm::backends
