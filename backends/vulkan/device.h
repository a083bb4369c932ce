// SPDX-License-Identifier: Apache-2.0
// Devices that a Vulkan driver offers: every physical device of Vulkan 1.2 or later with a queue for compute, discrete
// ones first, then integrated, virtual and processors, each in the driver's order.
//
// Submissions go through one in-order queue by way of the device's submit thread (backends/gpu). Copies between host
// memory and the device's go through staging memory; where the host reads the device's memory as cheaply as its own
// (integrated GPUs and processors), the host writes straight into buffers that no command is using.
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
  DriverBuilder* builder = nullptr;      // Borrowed; null: pipelines are built in this process, and nothing is kept.
  LearntStore* learnt = nullptr;         // Borrowed; may be null.
  GrantGate* gate = nullptr;             // Borrowed; may be null.
  gpu::ForcedVariant* forced = nullptr;  // DeviceOptions::gpu_forced.
  // Loads VK_LAYER_KHRONOS_validation; kNotFound where it is not installed. The environment variable
  // HPVMD_VULKAN_VALIDATION=1 does the same.
  bool validate = false;
  // For tests: never write straight into mapped memory, copy by kernels, choose groups and measure variants, all as on
  // a discrete GPU.
  bool as_discrete = false;
  gpu::StagingShape staging{};  // For tests.
};

// "vulkan:0" and so on; empty without a loader or a driver.
StatusOr<std::vector<std::string>> ListVulkanDevices();
// "vulkan:1"; "vulkan" is the first. kNotFound for a device that does not exist, with how many there are.
StatusOr<std::unique_ptr<Device>> CreateVulkanDevice(std::string_view device, Hub& hub, const VulkanOptions& options);

// What the validation layer has said in this process, warnings and errors; for tests, which want none.
struct ValidationMessages {
  uint64_t count = 0;
  std::vector<std::string> texts;  // The first few.
};
ValidationMessages TakeValidationMessages();
extern const DeviceFamily kVulkanFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_VULKAN_DEVICE_H_
