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
#include "compiler/api/learnt.h"

namespace hpvm {

namespace gpu {
class ForcedVariant;
}

struct DeviceOptions {
  uint32_t cpu_threads = 0;               // Including the submitting one; 0 = as many as this process may run on.
  const GrantEntry* cpu_grant = nullptr;  // Obeyed at chunk boundaries when given; borrowed for the device's life.
  GrantGate* gate = nullptr;              // Counts who is on a device with a grant; likewise.
  LearntStore* learnt = nullptr;          // Keeps what devices measure of kernels; borrowed for the device's life.
  uint32_t cpu_variant = kAutoVariant;    // For tests: CpuDeviceOptions::variant.
  // Builds programs for devices with a driver in a process of its own; borrowed for the device's life. Null: devices
  // build in this process, and keep nothing.
  DriverBuilder* builder = nullptr;
  gpu::ForcedVariant* gpu_forced = nullptr;  // For tests; borrowed for the device's life.
  bool fpga = false;                         // Present this OpenCL device as an FPGA-class one, whatever its type.
};

struct DeviceFamily {
  // Its devices' names begin with it: "opencl:1" is one of "opencl".
  std::string_view name;
  // Opens one by its name. kNotFound for one that does not exist, with how many there are.
  StatusOr<std::unique_ptr<Device>> (*open)(std::string_view device, Hub& hub, const DeviceOptions& options) = nullptr;

  // --- For families whose devices come with a vendor's libraries ---
  // The names of those here; loads the libraries. Null: the family is its only device, and loads nothing.
  StatusOr<std::vector<std::string>> (*list)() = nullptr;
  // Builds a program in this process, which may not survive it.
  StatusOr<DriverBinary> (*build)(const DriverBuild& build) = nullptr;
  // The driver's name and version, the device's name: a change of it makes kept binaries useless.
  StatusOr<std::string> (*identity)(const std::string& device) = nullptr;
  // Its modules are OpenCL C or SPIR-V kernels: the compiler process is asked to read them.
  bool reads_opencl = false;

  bool has_driver() const { return list != nullptr; }
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_DEVICE_FAMILY_H_
