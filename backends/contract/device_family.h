// SPDX-License-Identifier: Apache-2.0
// A family of devices: how its devices are found and opened. Each family's `device.cc` defines one row, and
// backends/registry.cc lists the rows.
#ifndef HPVMD_BACKENDS_CONTRACT_DEVICE_FAMILY_H_
#define HPVMD_BACKENDS_CONTRACT_DEVICE_FAMILY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/device.h"
#include "backends/contract/driver_builder.h"
#include "backends/contract/grant.h"
#include "backends/contract/grant_gate.h"
#include "compiler/api/tuning_record.h"

namespace hpvm {

namespace gpu {
class ForcedVariant;
}

struct DeviceOptions {
  // Including the submitting thread; 0 means as many as this process may run on.
  uint32_t cpu_threads = 0;
  // Obeyed at chunk boundaries when given; borrowed for the device's life.
  const GrantEntry* cpu_grant = nullptr;
  // Counts the users of a device with a grant; borrowed for the device's life.
  GrantGate* gate = nullptr;
  // Stores what devices measure of kernels; borrowed for the device's life.
  TuningStore* tuning = nullptr;
  uint32_t cpu_variant = kAutoVariant;  // For tests: CpuDeviceOptions::variant.
  // Builds programs for devices with a driver in a separate process; borrowed for the device's life. Null: devices
  // build in this process, and cache nothing.
  DriverBuilder* builder = nullptr;
  gpu::ForcedVariant* gpu_forced = nullptr;  // For tests; borrowed for the device's life.
  // Presents this OpenCL device as an FPGA-class device, whatever its type.
  bool fpga = false;
};

struct DeviceFamily {
  // Prefix of its devices' names: "opencl:1" belongs to "opencl".
  std::string_view name;
  // Opens a device by its name. Returns kNotFound, with the number of devices, when it does not exist.
  StatusOr<std::unique_ptr<Device>> (*open)(std::string_view device, Hub& hub, const DeviceOptions& options) = nullptr;

  // --- For families whose devices come with a vendor's libraries ---
  // Lists the names of present devices; loads the libraries. Null: the family has a single device and loads nothing.
  StatusOr<std::vector<std::string>> (*list)() = nullptr;
  // Builds a program in this process, which may crash.
  StatusOr<DriverBinary> (*build)(const DriverBuild& build) = nullptr;
  // Returns the driver's name and version and the device's name: a change of it invalidates cached binaries.
  StatusOr<std::string> (*identity)(const std::string& device) = nullptr;
  // Its modules are OpenCL C or SPIR-V kernels, which the compiler process reads.
  bool reads_opencl = false;

  bool has_driver() const { return list != nullptr; }
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_DEVICE_FAMILY_H_
