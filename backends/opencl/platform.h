// SPDX-License-Identifier: Apache-2.0
// Which OpenCL devices there are, in an order that does not change from process to process, and what each is.
#ifndef HPVMD_BACKENDS_OPENCL_PLATFORM_H_
#define HPVMD_BACKENDS_OPENCL_PLATFORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/near_cpus.h"
#include "backends/opencl/cl.h"

namespace hpvm::opencl {

// A device with what this backend must know of its driver beyond DeviceInfo.
struct Found {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  DeviceInfo info;
  bool is_pocl = false;
  uint32_t view_alignment = 1;  // Bytes: where a sub-buffer may begin.
  gpu::NearCpus near;           // Processors that its bus ends at.
  bool pins_host_memory = false;
  // Imports of memory by file descriptor (cl_khr_external_memory_opaque_fd); null without.
  clEnqueueAcquireExternalMemObjectsKHR_fn acquire = nullptr;
  clEnqueueReleaseExternalMemObjectsKHR_fn release = nullptr;
  // Since 2.1, or cl_khr_il_program; null without.
  clCreateProgramWithILKHR_fn create_with_il = nullptr;
};

// All devices: GPUs first, then accelerators, then processors; in each the loader's order of platforms and the
// platform's of devices. The first call loads the drivers.
std::vector<Found> AllDevices();
// `name`: "opencl:1", or "opencl" for the first. kNotFound with how many there are.
StatusOr<Found> FindDevice(std::string_view name);

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_PLATFORM_H_
