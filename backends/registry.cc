// SPDX-License-Identifier: Apache-2.0
#include "backends/registry.h"

#include "backends/cpu/device.h"
#include "backends/interp/device.h"
#include "backends/null/device.h"
#include "backends/opencl/device.h"
#include "backends/vulkan/build.h"
#include "backends/vulkan/device.h"

namespace hpvm {
namespace {

// "opencl" of "opencl:1".
std::string_view FamilyOf(std::string_view name) { return name.substr(0, name.find(':')); }

Status Unknown(std::string_view backend) {
  std::string known;
  for (std::string_view name : BackendNames()) {
    known += (known.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  }
  return NotFound("Backend \"" + std::string(backend) + "\" does not exist; known are " + known + ".");
}

}  // namespace

std::vector<std::string_view> BackendNames() { return {"null", "interp", "cpu", "opencl", "vulkan"}; }

StatusOr<std::unique_ptr<Device>> CreateDevice(std::string_view backend, Hub& hub, const DeviceOptions& options) {
  if (backend == "null") {
    return CreateNullDevice(hub);
  }
  if (backend == "interp") {
    return CreateInterpDevice(hub);
  }
  if (backend == "cpu") {
    return CreateCpuDevice(
        hub, {options.cpu_threads, options.cpu_grant, options.learnt, options.cpu_variant, options.gate});
  }
  if (FamilyOf(backend) == "opencl") {
    return CreateOpenClDevice(
        backend, hub,
        {.builder = options.builder,
         .learnt = options.learnt,
         .gate = options.gate,
         .forced = options.gpu_forced,
         .fpga = options.fpga});
  }
  if (FamilyOf(backend) == "vulkan") {
    return CreateVulkanDevice(backend, hub,
                              {.builder = options.builder,
                               .learnt = options.learnt,
                               .gate = options.gate,
                               .forced = options.gpu_forced});
  }
  return Unknown(backend);
}

StatusOr<std::vector<std::string>> ListDevices(std::string_view backend) {
  if (backend == "null" || backend == "interp" || backend == "cpu") {
    return std::vector<std::string>{std::string(backend)};
  }
  if (backend == "opencl") {
    return ListOpenClDevices();
  }
  if (backend == "vulkan") {
    return ListVulkanDevices();
  }
  return Unknown(backend);
}

StatusOr<std::string> DriverIdentity(const std::string& device) {
  if (FamilyOf(device) == "opencl") {
    return OpenClDriverIdentity(device);
  }
  if (FamilyOf(device) == "vulkan") {
    return VulkanDriverIdentity(device);
  }
  return NotFound("\"" + device + "\" names no device with a driver.");
}

}  // namespace hpvm
