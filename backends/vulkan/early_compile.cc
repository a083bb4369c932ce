// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/early_compile.h"

#include <array>
#include <vector>

#include "backends/vulkan/slot.h"

namespace hpvm::vulkan {
namespace {

constexpr std::array<uint32_t, 3> kOneInstance{1, 1, 1};
constexpr VkPipelineBindPoint kCompute = VK_PIPELINE_BIND_POINT_COMPUTE;

// Binds any buffer at every binding, and zeros as push constants: a dispatch of no groups uses neither.
Status Bind(Context& context, CommandSlot& slot, const VariantLayout& layout, uint32_t push_bytes,
            VkCommandBuffer commands) {
  const DeviceFunctions& vk = context.vk();
  if (push_bytes != 0) {
    const std::vector<uint8_t> zeros((push_bytes + 3) / 4 * 4);
    vk.CmdPushConstants(commands, layout.pipeline.get(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                        static_cast<uint32_t>(zeros.size()), zeros.data());
  }
  const VkDescriptorBufferInfo any{slot.traps(), 0, slot.trap_bytes()};
  std::vector<VkWriteDescriptorSet> writes;
  for (const Binding& binding : layout.bindings) {
    writes.push_back(Typed<VkWriteDescriptorSet>(VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET));
    writes.back().dstBinding = binding.binding;
    writes.back().descriptorCount = 1;
    writes.back().descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    writes.back().pBufferInfo = &any;
  }
  const auto count = static_cast<uint32_t>(writes.size());
  if (count == 0) {
    return absl::OkStatus();
  }
  if (layout.pushes_descriptors) {
    vk.CmdPushDescriptorSetKHR(commands, kCompute, layout.pipeline.get(), 0, count, writes.data());
    return absl::OkStatus();
  }
  std::vector<VkDescriptorSet> sets;
  for (const Owned<VkDescriptorSetLayout>& set : layout.sets) {
    HPVMD_ASSIGN_OR_RETURN(VkDescriptorSet handle, slot.NextSet(set.get()));
    sets.push_back(handle);
  }
  for (uint32_t i = 0; i < count; ++i) {
    writes[i].dstSet = sets[layout.bindings[i].set];
  }
  vk.UpdateDescriptorSets(context.device(), count, writes.data(), 0, nullptr);
  vk.CmdBindDescriptorSets(commands, kCompute, layout.pipeline.get(), 0, static_cast<uint32_t>(sets.size()),
                           sets.data(), 0, nullptr);
  return absl::OkStatus();
}

}  // namespace

Status CompileEarly(Context& context, Memory& memory, std::span<const GpuVariant> variants, Pipelines& pipelines) {
  if (!context.physical().compiles_at_dispatch) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<CommandSlot> slot, CommandSlot::Create(context, memory, Lane::kCompute));
  HPVMD_RETURN_IF_ERROR(slot->GrowTraps(1));
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, slot->NextCommands());
  const DeviceFunctions& vk = context.vk();
  auto info = Typed<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  HPVMD_RETURN_IF_ERROR(context.Check(vk.BeginCommandBuffer(commands, &info), "Recording commands"));
  for (uint32_t i = 0; i < variants.size(); ++i) {
    if (variants[i].tile != kOneInstance) {
      continue;
    }
    const VariantLayout& layout = pipelines.layout(i);
    HPVMD_ASSIGN_OR_RETURN(VkPipeline pipeline, pipelines.Get(i, UsualGroup(variants[i], context.physical().info.gpu)));
    vk.CmdBindPipeline(commands, kCompute, pipeline);
    HPVMD_RETURN_IF_ERROR(Bind(context, *slot, layout, layout.has_facts_buffer ? 0 : variants[i].push_bytes, commands));
    vk.CmdDispatch(commands, 0, 0, 0);
  }
  HPVMD_RETURN_IF_ERROR(context.Check(vk.EndCommandBuffer(commands), "Recording commands"));
  HPVMD_ASSIGN_OR_RETURN(const uint64_t value, context.Submit(Lane::kCompute, commands));
  return context.Wait({Lane::kCompute, value});
}

}  // namespace hpvm::vulkan
