// SPDX-License-Identifier: Apache-2.0
// Devices that OpenCL drivers offer through the ICD loader: GPUs, accelerators (FPGA-class ones), and processors under
// another name.
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
  DriverBuilder* builder = nullptr;      // Borrowed; null: programs are built in this process, and nothing is kept.
  LearntStore* learnt = nullptr;         // Borrowed; may be null.
  GrantGate* gate = nullptr;             // Borrowed; may be null.
  gpu::ForcedVariant* forced = nullptr;  // DeviceOptions::gpu_forced.
  bool fpga = false;                     // DeviceOptions::fpga.
  // For tests, of devices that are the host: pinned memory also for their copies, and lanes that gain nothing.
  bool always_stage = false;
  bool has_copy_lanes = false;
  gpu::StagingShape staging{};  // For tests.
  // For tests: taken as the largest group that the driver allows a kernel of which it knows no group. 0: as it says.
  uint32_t undeclared_group_max = 0;
};

// "opencl:0" and so on; empty without a driver.
std::vector<std::string> ListOpenClDevices();
// `name`: "opencl:1", or "opencl" for the first. kNotFound for a device that does not exist, with how many there are;
// kUnavailable when its driver does not come up.
StatusOr<std::unique_ptr<Device>> CreateOpenClDevice(std::string_view name, Hub& hub, const OpenClOptions& options);
// DriverIdentity of such a device.
// As DeviceFamily::build and identity.
StatusOr<DriverBinary> BuildForOpenCl(const DriverBuild& build);
extern const DeviceFamily kOpenClFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_OPENCL_DEVICE_H_
