// SPDX-License-Identifier: Apache-2.0
// Lists the OpenCL devices, in an order that is the same in every process, with their properties.
#ifndef HPVMD_BACKENDS_OPENCL_PLATFORM_H_
#define HPVMD_BACKENDS_OPENCL_PLATFORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/near_cpus.h"
#include "backends/opencl/cl.h"

namespace hpvm::opencl {

// A device with the properties of its driver that this backend needs beyond DeviceInfo.
struct Found {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  DeviceInfo info;
  bool is_pocl = false;
  uint32_t view_alignment = 1;  // In bytes: alignment of sub-buffers.
  gpu::NearCpus near;           // Processors to which its bus is attached.
  bool pins_host_memory = false;
  // Imports of memory by file descriptor (cl_khr_external_memory_opaque_fd); null when unsupported.
  clEnqueueAcquireExternalMemObjectsKHR_fn acquire = nullptr;
  clEnqueueReleaseExternalMemObjectsKHR_fn release = nullptr;
  // Available since 2.1, or with cl_khr_il_program; otherwise null.
  clCreateProgramWithILKHR_fn create_with_il = nullptr;
};

// Returns all devices: GPUs first, then accelerators, then processors; within each kind in the loader's order of
// platforms and the platform's order of devices. The first call loads the drivers.
std::vector<Found> AllDevices();
// `name`: "opencl:1", or "opencl" for the first. Returns kNotFound, with the number of devices, when it does not exist.
StatusOr<Found> FindDevice(std::string_view name);

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_PLATFORM_H_
