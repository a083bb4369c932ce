// SPDX-License-Identifier: Apache-2.0
// Devices of Vulkan drivers: every physical device of Vulkan 1.2 or later with a compute queue, discrete ones first,
// then integrated, virtual and processors, each in the driver's order.
//
// Submissions of a lane go through one in-order queue by the lane's submit thread (backends/gpu). Copies between host
// memory and the device's go through staging memory; if the host reads the device's memory as cheaply as its own
// (integrated GPUs and processors), the host writes directly into buffers that no command is using.
#ifndef HPVMD_BACKENDS_VULKAN_DEVICE_H_
#define HPVMD_BACKENDS_VULKAN_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/device_family.h"
#include "backends/gpu/staging_shape.h"

namespace hpvm {

struct VulkanOptions {
  // Borrowed; null: pipelines are built in this process, and nothing is cached.
  DriverBuilder* builder = nullptr;
  TuningStore* tuning = nullptr;         // Borrowed; may be null.
  GrantGate* gate = nullptr;             // Borrowed; may be null.
  gpu::ForcedVariant* forced = nullptr;  // DeviceOptions::gpu_forced.
  // Loads VK_LAYER_KHRONOS_validation; kNotFound when it is not installed. The environment variable
  // HPVMD_VULKAN_VALIDATION=1 has the same effect.
  bool validate = false;
  // For tests: never writes directly into mapped memory, copies by kernels, chooses groups and measures variants, all
  // as on a discrete GPU.
  bool as_discrete = false;
  gpu::StagingShape staging{};  // For tests.
};

// Returns "vulkan:0" and so on; empty without a loader or a driver.
StatusOr<std::vector<std::string>> ListVulkanDevices();
// "vulkan:1"; "vulkan" is the first device. Returns kNotFound, with the number of devices, when it does not exist.
StatusOr<std::unique_ptr<Device>> CreateVulkanDevice(std::string_view device, Hub& hub, const VulkanOptions& options);

// Warnings and errors of the validation layer in this process; for tests, which expect none.
struct ValidationMessages {
  uint64_t count = 0;
  std::vector<std::string> texts;  // The first few.
};
ValidationMessages TakeValidationMessages();
extern const DeviceFamily kVulkanFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_VULKAN_DEVICE_H_
