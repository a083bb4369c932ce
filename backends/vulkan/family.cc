// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/family.h"

#include "backends/vulkan/build.h"
#include "backends/vulkan/device.h"

namespace hpvm {
namespace {

StatusOr<std::unique_ptr<Device>> Open(std::string_view device, Hub& hub, const DeviceOptions& options) {
  return CreateVulkanDevice(
      device, hub,
      {.builder = options.builder, .learnt = options.learnt, .gate = options.gate, .forced = options.gpu_forced});
}

}  // namespace

const DeviceFamily kVulkanFamily = {.name = "vulkan",
                                    .open = Open,
                                    .list = ListVulkanDevices,
                                    .build = BuildForVulkan,
                                    .identity = VulkanDriverIdentity};

}  // namespace hpvm
