// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/build.h"

#include <charconv>
#include <string_view>

#include "backends/contract/driver_builder.h"
#include "backends/vulkan/context.h"
#include "backends/vulkan/early_compile.h"
#include "backends/vulkan/executable.h"
#include "backends/vulkan/instance.h"

namespace hpvm {
StatusOr<uint32_t> VulkanDeviceIndex(std::string_view device) {
  constexpr std::string_view kBackend = "vulkan";
  uint32_t index = 0;
  if (device == kBackend) {
    return index;
  }
  const std::string_view digits = device.substr(std::min(device.size(), kBackend.size() + 1));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (!device.starts_with("vulkan:") || error != std::errc() || end != digits.data() + digits.size()) {
    return NotFound("\"" + std::string(device) +
                    "\" is not the name of a Vulkan device; names have the form \"vulkan:0\".");
  }
  return index;
}

StatusOr<DriverBinary> BuildForVulkan(const DriverBuild& build) {
  if (build.format != GpuFormat::kSpirvShader || build.variants.empty()) {
    return InvalidArgument("A Vulkan device's driver builds SPIR-V shader modules only.");
  }
  HPVMD_ASSIGN_OR_RETURN(const uint32_t index, VulkanDeviceIndex(build.device));
  HPVMD_ASSIGN_OR_RETURN(const vulkan::Instance* instance, vulkan::Instance::Get(false));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<vulkan::Context> context, vulkan::Context::Create(*instance, index));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<vulkan::Pipelines> pipelines,
                         vulkan::Pipelines::Create(*context, build.code, build.variants, {}));
  for (uint32_t i = 0; i < build.variants.size(); ++i) {
    HPVMD_RETURN_IF_ERROR(
        pipelines->Get(i, vulkan::UsualGroup(build.variants[i], context->physical().info.gpu)).status());
    for (const vulkan::Group& group : build.groups) {
      if (build.variants[i].group[0] == 0) {
        HPVMD_RETURN_IF_ERROR(pipelines->Get(i, group).status());
      }
    }
  }
  vulkan::Memory memory(*context, /*never_map=*/false);
  HPVMD_RETURN_IF_ERROR(vulkan::CompileEarly(*context, memory, build.variants, *pipelines));
  DriverBinary binary;
  HPVMD_ASSIGN_OR_RETURN(binary.bytes, pipelines->CacheData());
  return binary;
}

StatusOr<std::string> VulkanDriverIdentity(const std::string& device) {
  HPVMD_ASSIGN_OR_RETURN(const uint32_t index, VulkanDeviceIndex(device));
  HPVMD_ASSIGN_OR_RETURN(const vulkan::Instance* instance, vulkan::Instance::Get(false));
  if (index >= instance->devices().size()) {
    return NotFound("Device \"" + device + "\" does not exist.");
  }
  return instance->devices()[index].driver;
}

}  // namespace hpvm
