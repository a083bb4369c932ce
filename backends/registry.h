// SPDX-License-Identifier: Apache-2.0
// The one place that names every backend.
#ifndef HPVMD_BACKENDS_REGISTRY_H_
#define HPVMD_BACKENDS_REGISTRY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/device.h"
#include "backends/contract/driver_builder.h"
#include "backends/contract/grant.h"
#include "backends/contract/grant_gate.h"
#include "compiler/api/learnt.h"

namespace hpvm {

namespace gpu {
class ForcedVariant;
}

struct DeviceOptions {
  uint32_t cpu_threads = 0;               // Including the submitting one; 0 = as many as this process may run on.
  const GrantEntry* cpu_grant = nullptr;  // Obeyed at chunk boundaries when given; borrowed for the device's life.
  GrantGate* gate = nullptr;  // Counts who is on a device with a grant; likewise.
  LearntStore* learnt = nullptr;          // Keeps what devices measure of kernels; borrowed for the device's life.
  uint32_t cpu_variant = kAutoVariant;    // For tests: CpuDeviceOptions::variant.
  // Builds programs for "opencl" and "vulkan" devices in a process of its own; borrowed for the device's life. Null:
  // devices build in this process, and keep nothing.
  DriverBuilder* builder = nullptr;
  gpu::ForcedVariant* gpu_forced = nullptr;  // For tests; borrowed for the device's life.
  bool fpga = false;                         // Present this OpenCL device as an FPGA-class one, whatever its type.
};

// Names: "null", "interp", "cpu", "opencl", "vulkan"; the last two may be followed by which of their devices,
// "opencl:1". kNotFound for others, with the list, and for devices that do not exist, with how many there are.
StatusOr<std::unique_ptr<Device>> CreateDevice(std::string_view backend, Hub& hub, const DeviceOptions& options);
std::vector<std::string_view> BackendNames();
// The devices a backend has here, as CreateDevice takes them: {"cpu"}, {"opencl:0", "opencl:1"}. Loads drivers.
StatusOr<std::vector<std::string>> ListDevices(std::string_view backend);

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_REGISTRY_H_
