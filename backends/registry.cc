// SPDX-License-Identifier: Apache-2.0
#include "backends/registry.h"

#include "backends/cpu/device.h"
#include "backends/interp/device.h"
#include "backends/null/device.h"

namespace hpvm {

std::vector<std::string_view> BackendNames() { return {"null", "interp", "cpu"}; }

StatusOr<std::unique_ptr<Device>> CreateDevice(std::string_view backend, Hub& hub, const DeviceOptions& options) {
  if (backend == "null") {
    return CreateNullDevice(hub);
  }
  if (backend == "interp") {
    return CreateInterpDevice(hub);
  }
  if (backend == "cpu") {
    return CreateCpuDevice(hub, {options.cpu_threads, options.cpu_grant, options.learnt, options.cpu_variant});
  }
  std::string known;
  for (std::string_view name : BackendNames()) {
    known += (known.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  }
  return NotFound("Backend \"" + std::string(backend) + "\" does not exist; known are " + known + ".");
}

}  // namespace hpvm
