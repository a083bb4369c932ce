// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/executable.h"

#include <algorithm>
#include <cstring>

#include "backends/gpu/parts.h"

namespace hpvm::vulkan {
namespace {

using Kind = GpuArgument::Kind;

constexpr uint32_t kSpirvMagic = 0x07230203;
constexpr uint32_t kSetsMax = 32;        // The number that devices commonly allow to be bound.
constexpr uint32_t kBindingsMax = 4096;  // Drivers keep a table up to the highest binding of a set.

std::string VariantName(size_t index) { return "Variant " + std::to_string(index) + " of the kernel"; }

// Checks the device's limits before the driver is called.
Status CheckVariant(const Context& context, const GpuVariant& variant, size_t index) {
  const GpuTarget& target = context.physical().info.gpu;
  if (variant.facts_binding == GpuVariant::kNoConstant && variant.push_bytes > target.push_bytes_max) {
    return InvalidArgument(VariantName(index) + " takes more push constants (" + std::to_string(variant.push_bytes) +
                           " bytes) than " + context.name() + " has (" + std::to_string(target.push_bytes_max) +
                           " bytes).");
  }
  if (variant.local_bytes > target.local_bytes_max) {
    return InvalidArgument(VariantName(index) + " declares more group memory (" + std::to_string(variant.local_bytes) +
                           " bytes) than " + context.name() + " has (" + std::to_string(target.local_bytes_max) +
                           " bytes).");
  }
  return absl::OkStatus();
}

Status CheckBindings(const Context& context, const std::vector<Binding>& bindings, size_t index) {
  const uint32_t buffers_max = context.limits().maxPerStageDescriptorStorageBuffers;
  if (bindings.size() > buffers_max) {
    return InvalidArgument(VariantName(index) + " takes more buffers (" + std::to_string(bindings.size()) + ") than " +
                           context.name() + " can bind (" + std::to_string(buffers_max) + ").");
  }
  const uint32_t sets_max = std::min(kSetsMax, context.limits().maxBoundDescriptorSets);
  if (!bindings.empty() && bindings.back().set >= sets_max) {
    return InvalidArgument(VariantName(index) + " uses descriptor set " + std::to_string(bindings.back().set) +
                           "; the limit of " + context.name() + " is " + std::to_string(sets_max) + " sets.");
  }
  for (const Binding& binding : bindings) {
    if (binding.binding >= kBindingsMax) {
      return InvalidArgument(VariantName(index) + " uses binding " + std::to_string(binding.binding) +
                             "; the limit is " + std::to_string(kBindingsMax) + " bindings.");
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<Binding>> BindingsOf(const GpuVariant& variant) {
  std::vector<Binding> bindings;
  for (const GpuArgument& argument : variant.arguments) {
    if (argument.kind == Kind::kBuffer) {
      const bool takes_start = std::any_of(
          variant.arguments.begin(), variant.arguments.end(),
          [&](const GpuArgument& other) { return other.kind == Kind::kBufferStart && other.index == argument.index; });
      bindings.push_back(
          {Binding::Kind::kParam, argument.set, argument.binding, argument.index, argument.is_writable, takes_start});
    } else if (argument.kind == Kind::kTrapRecord) {
      bindings.push_back({Binding::Kind::kTrapRecords, argument.set, argument.binding, 0, true, false});
    }
  }
  if (variant.facts_binding != GpuVariant::kNoConstant) {
    bindings.push_back({Binding::Kind::kFacts, variant.facts_set, variant.facts_binding, 0, false, false});
  }
  const auto place = [](const Binding& binding) { return std::pair(binding.set, binding.binding); };
  std::sort(bindings.begin(), bindings.end(), [&](const Binding& a, const Binding& b) { return place(a) < place(b); });
  for (size_t i = 1; i < bindings.size(); ++i) {
    if (place(bindings[i]) == place(bindings[i - 1])) {
      return InvalidArgument("Two arguments are bound at set " + std::to_string(bindings[i].set) + ", binding " +
                             std::to_string(bindings[i].binding) + ".");
    }
  }
  return bindings;
}

Group UsualGroup(const GpuVariant& variant, const GpuTarget& target) {
  if (variant.group[0] != 0) {
    return variant.group;
  }
  return gpu::ShapesFor(target, 1).front();
}

StatusOr<std::unique_ptr<Pipelines>> Pipelines::Create(Context& context, std::span<const uint8_t> code,
                                                       std::span<const GpuVariant> variants,
                                                       std::span<const uint8_t> cached) {
  auto pipelines = std::unique_ptr<Pipelines>(new Pipelines(context, variants));
  for (size_t i = 0; i < variants.size(); ++i) {
    HPVMD_RETURN_IF_ERROR(CheckVariant(context, variants[i], i));
    HPVMD_RETURN_IF_ERROR(pipelines->CreateLayout(variants[i]));
  }
  HPVMD_RETURN_IF_ERROR(pipelines->CreateModule(code));
  HPVMD_RETURN_IF_ERROR(pipelines->CreateCache(cached));
  return pipelines;
}

Status Pipelines::CreateModule(std::span<const uint8_t> code) {
  constexpr size_t kHeaderBytes = 20;
  uint32_t magic = 0;
  if (code.size() >= kHeaderBytes) {
    std::memcpy(&magic, code.data(), sizeof(magic));
  }
  if (code.size() % 4 != 0 || magic != kSpirvMagic) {
    return InvalidArgument("The kernel's code (" + std::to_string(code.size()) + " bytes) is not a SPIR-V module.");
  }
  std::vector<uint32_t> words(code.size() / 4);  // Aligned.
  std::memcpy(words.data(), code.data(), code.size());
  auto info = Typed<VkShaderModuleCreateInfo>(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
  info.codeSize = words.size() * 4;
  info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().CreateShaderModule(context_.device(), &info, nullptr, &module),
                                       "Creating a shader module"));
  module_ = {context_.device(), module, context_.vk().DestroyShaderModule};
  return absl::OkStatus();
}

Status Pipelines::CreateCache(std::span<const uint8_t> cached) {
  // Drivers must ignore data of another driver or device, but may do anything with a truncated header.
  VkPipelineCacheHeaderVersionOne header{};
  const VkPhysicalDeviceProperties& properties = context_.physical().properties;
  if (cached.size() > sizeof(header)) {
    std::memcpy(&header, cached.data(), sizeof(header));
  }
  const bool is_ours = header.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE &&
                       header.vendorID == properties.vendorID && header.deviceID == properties.deviceID &&
                       std::memcmp(header.pipelineCacheUUID, properties.pipelineCacheUUID, VK_UUID_SIZE) == 0;
  auto info = Typed<VkPipelineCacheCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO);
  info.initialDataSize = is_ours ? cached.size() : 0;
  info.pInitialData = is_ours ? cached.data() : nullptr;
  VkPipelineCache cache = VK_NULL_HANDLE;
  VkResult result = context_.vk().CreatePipelineCache(context_.device(), &info, nullptr, &cache);
  if (result != VK_SUCCESS && info.initialDataSize != 0) {  // Some drivers treat truncated data as an error.
    info.initialDataSize = 0;
    result = context_.vk().CreatePipelineCache(context_.device(), &info, nullptr, &cache);
  }
  HPVMD_RETURN_IF_ERROR(context_.Check(result, "Creating a pipeline cache"));
  cache_ = {context_.device(), cache, context_.vk().DestroyPipelineCache};
  return absl::OkStatus();
}

Status Pipelines::CreateSetLayouts(VariantLayout& layout) {
  const uint32_t sets = layout.bindings.empty() ? 0 : layout.bindings.back().set + 1;
  const Enabled& enabled = context_.physical().enabled;
  layout.pushes_descriptors =
      enabled.push_descriptors && sets == 1 && layout.bindings.size() <= enabled.push_descriptors_max;
  for (uint32_t set = 0; set < sets; ++set) {
    std::vector<VkDescriptorSetLayoutBinding> descriptions;
    for (const Binding& binding : layout.bindings) {
      if (binding.set == set) {
        descriptions.push_back(
            {binding.binding, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
      }
    }
    auto info = Typed<VkDescriptorSetLayoutCreateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO);
    info.flags = layout.pushes_descriptors ? VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR : 0;
    info.bindingCount = static_cast<uint32_t>(descriptions.size());
    info.pBindings = descriptions.data();
    VkDescriptorSetLayout handle = VK_NULL_HANDLE;
    HPVMD_RETURN_IF_ERROR(
        context_.Check(context_.vk().CreateDescriptorSetLayout(context_.device(), &info, nullptr, &handle),
                       "Creating a descriptor set layout"));
    layout.sets.emplace_back(context_.device(), handle, context_.vk().DestroyDescriptorSetLayout);
  }
  return absl::OkStatus();
}

Status Pipelines::CreateLayout(const GpuVariant& variant) {
  VariantLayout layout;
  HPVMD_ASSIGN_OR_RETURN(layout.bindings, BindingsOf(variant));
  HPVMD_RETURN_IF_ERROR(CheckBindings(context_, layout.bindings, layouts_.size()));
  HPVMD_RETURN_IF_ERROR(CreateSetLayouts(layout));
  layout.has_facts_buffer = variant.facts_binding != GpuVariant::kNoConstant;
  std::vector<VkDescriptorSetLayout> handles;
  for (const Owned<VkDescriptorSetLayout>& set : layout.sets) {
    handles.push_back(set.get());
  }
  const uint32_t push_bytes = (variant.push_bytes + 3) / 4 * 4;
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes};
  auto info = Typed<VkPipelineLayoutCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
  info.setLayoutCount = static_cast<uint32_t>(handles.size());
  info.pSetLayouts = handles.data();
  info.pushConstantRangeCount = push_bytes != 0 && !layout.has_facts_buffer ? 1 : 0;
  info.pPushConstantRanges = &range;
  VkPipelineLayout handle = VK_NULL_HANDLE;
  HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().CreatePipelineLayout(context_.device(), &info, nullptr, &handle),
                                       "Creating a pipeline layout"));
  layout.pipeline = {context_.device(), handle, context_.vk().DestroyPipelineLayout};
  layouts_.push_back(std::move(layout));
  return absl::OkStatus();
}

StatusOr<VkPipeline> Pipelines::Get(uint32_t variant, const Group& group) {
  HPVMD_CHECK(variant < variants_.size());
  Group key = group;
  for (int d = 0; d < 3; ++d) {
    if (variants_[variant].group_constant[d] == GpuVariant::kNoConstant) {
      key[d] = 0;  // Fixed in the code.
    }
  }
  std::lock_guard lock(mutex_);
  const auto it = built_.find({variant, key});
  return it != built_.end() ? StatusOr<VkPipeline>(it->second.get()) : Build(variant, key);
}

// The caller holds mutex_.
StatusOr<VkPipeline> Pipelines::Build(uint32_t variant, const Group& group) {
  const GpuVariant& code = variants_[variant];
  std::vector<VkSpecializationMapEntry> entries;
  for (uint32_t d = 0; d < 3; ++d) {
    if (group[d] != 0) {
      entries.push_back({code.group_constant[d], d * 4, 4});
    }
  }
  VkSpecializationInfo constants{};
  constants.mapEntryCount = static_cast<uint32_t>(entries.size());
  constants.pMapEntries = entries.data();
  constants.dataSize = sizeof(group);
  constants.pData = group.data();
  auto info = Typed<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  info.stage = Typed<VkPipelineShaderStageCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO);
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module_.get();
  info.stage.pName = code.entry.c_str();
  info.stage.pSpecializationInfo = entries.empty() ? nullptr : &constants;
  info.layout = layouts_[variant].pipeline.get();
  VkPipeline handle = VK_NULL_HANDLE;
  const VkResult result =
      context_.vk().CreateComputePipelines(context_.device(), cache_.get(), 1, &info, nullptr, &handle);
  if (result != VK_SUCCESS && result != VK_ERROR_DEVICE_LOST && result != VK_ERROR_OUT_OF_HOST_MEMORY &&
      result != VK_ERROR_OUT_OF_DEVICE_MEMORY) {
    return InvalidArgument("The driver of " + context_.name() + " refuses kernel \"" + code.entry +
                           "\": " + ResultName(result) + ".");
  }
  HPVMD_RETURN_IF_ERROR(context_.Check(result, "Creating a pipeline for kernel \"" + code.entry + "\""));
  built_[{variant, group}] = {context_.device(), handle, context_.vk().DestroyPipeline};
  return handle;
}

StatusOr<std::vector<uint8_t>> Pipelines::CacheData() {
  size_t bytes = 0;
  const DeviceFunctions& vk = context_.vk();
  HPVMD_RETURN_IF_ERROR(context_.Check(vk.GetPipelineCacheData(context_.device(), cache_.get(), &bytes, nullptr),
                                       "Reading a pipeline cache"));
  std::vector<uint8_t> data(bytes);
  HPVMD_RETURN_IF_ERROR(context_.Check(vk.GetPipelineCacheData(context_.device(), cache_.get(), &bytes, data.data()),
                                       "Reading a pipeline cache"));
  data.resize(bytes);
  return data;
}

VulkanExecutable::VulkanExecutable(Artifact artifact, std::unique_ptr<Pipelines> pipelines, const GpuTarget& target,
                                   gpu::ForcedVariant* forced, TuningStore* tuning)
    : artifact_(std::move(artifact)),
      pipelines_(std::move(pipelines)),
      reader_(artifact_),
      chooser_(gpu::CreateChooser(artifact_, target, forced, tuning)) {}

}  // namespace hpvm::vulkan
