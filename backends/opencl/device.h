// SPDX-License-Identifier: Apache-2.0
// Devices of OpenCL drivers, found through the ICD loader: GPUs, accelerators (FPGA-class devices), and processors
// under another name.
#ifndef HPVMD_BACKENDS_OPENCL_DEVICE_H_
#define HPVMD_BACKENDS_OPENCL_DEVICE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/device_family.h"
#include "backends/gpu/staging_shape.h"

namespace hpvm {

struct OpenClOptions {
  // Borrowed; null: programs are built in this process, and nothing is cached.
  DriverBuilder* builder = nullptr;
  TuningStore* tuning = nullptr;         // Borrowed; may be null.
  GrantGate* gate = nullptr;             // Borrowed; may be null.
  gpu::ForcedVariant* forced = nullptr;  // DeviceOptions::gpu_forced.
  bool fpga = false;                     // DeviceOptions::fpga.
  // For tests with devices that are the host: also uses pinned memory and copy lanes, which gain nothing there.
  bool always_stage = false;
  bool has_copy_lanes = false;
  gpu::StagingShape staging{};  // For tests.
  // For tests: overrides the driver's largest group for a kernel without a declared group. 0: no override.
  uint32_t undeclared_group_max = 0;
};

// Returns "opencl:0" and so on; empty without a driver.
std::vector<std::string> ListOpenClDevices();
// `name`: "opencl:1", or "opencl" for the first. Returns kNotFound, with the number of devices, for a device that does
// not exist; kUnavailable when its driver fails to start.
StatusOr<std::unique_ptr<Device>> CreateOpenClDevice(std::string_view name, Hub& hub, const OpenClOptions& options);
// Implementations of DeviceFamily::build and identity.
StatusOr<DriverBinary> BuildForOpenCl(const DriverBuild& build);
extern const DeviceFamily kOpenClFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_OPENCL_DEVICE_H_
