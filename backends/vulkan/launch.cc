// SPDX-License-Identifier: Apache-2.0
// Records dispatches of a flight.
#include <algorithm>
#include <cstring>

#include "backends/vulkan/copy_kernel.h"
#include "backends/vulkan/flight.h"

namespace hpvm::vulkan {
namespace {

using Kind = GpuArgument::Kind;

// The device runs the first commands of a long list while the rest is recorded. (Measured on an H200: 1,000 dependent
// dispatches take 3.8 us each when recorded as one list, and 2.5 us in pieces of 50 to 100.)
constexpr size_t kDispatchesOfFlush = 64;
// Emitted kernels are told which record is theirs.
constexpr uint32_t kAllRecords = ~0u;

bool IsValue(Kind kind) { return kind != Kind::kBuffer && kind != Kind::kTrapRecord; }

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

std::string ParamName(const Artifact& artifact, size_t index) { return "\"" + artifact.params[index].name + "\""; }

}  // namespace

Status VulkanFlight::RecordDispatch(const DispatchCommand& dispatch) {
  if (gpu::IsEmpty(dispatch)) {
    return absl::OkStatus();
  }
  if (deck_.lane != Lane::kCompute) {
    return Internal("A launch was submitted to a lane for copies.");
  }
  // Safety: the engine passes to a device only executables that it loaded.
  auto& executable = static_cast<VulkanExecutable&>(*dispatch.executable);
  HPVMD_RETURN_IF_ERROR(executable.reader().Read(dispatch, submission_, &inputs_));
  HPVMD_RETURN_IF_ERROR(PlaceViews(executable, executable.artifact().gpu.is_native));
  HPVMD_RETURN_IF_ERROR(executable.chooser().Choose(inputs_.facts, &chosen_));
  gpu::NoteVariant(chosen_, dispatch, submission_);
  const uint32_t trap_index = traps_.Take(dispatch);
  for (const gpu::Part& part : chosen_.parts) {
    for (const Binding& binding : executable.pipelines().layout(part.variant).bindings) {
      if (binding.kind == Binding::Kind::kParam) {
        // Safety: PlaceViews has checked every buffer.
        auto& buffer = static_cast<VulkanBuffer&>(*inputs_.buffers[binding.param]);
        const VkDescriptorBufferInfo& view = views_[binding.param];
        binding.is_writable ? writer_.Writes(buffer, view.offset, view.range)
                            : writer_.Reads(buffer, view.offset, view.range);
      }
    }
  }
  HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kDispatch));
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  const bool is_tuned = chosen_.is_measured && clock_.is_timing();
  if (is_tuned || !submission_.timings.empty()) {
    if (clock_.Before(commands, dispatch, is_tuned)) {
      tuned_.push_back({&executable.chooser(), inputs_.facts, chosen_.parts});
    }
  }
  for (const gpu::Part& part : chosen_.parts) {
    HPVMD_RETURN_IF_ERROR(RecordPart(executable, part, trap_index));
  }
  HPVMD_ASSIGN_OR_RETURN(commands, writer_.Open());
  clock_.After(commands);
  return ++dispatches_ % kDispatchesOfFlush == 0 ? writer_.Flush() : absl::OkStatus();
}

// Computes where each view is bound: from a multiple of the device's alignment on, so the view itself begins some bytes
// later.
Status VulkanFlight::PlaceViews(const VulkanExecutable& executable, bool is_native) {
  const uint64_t alignment = context_.binding_alignment();
  const uint64_t range_max = context_.limits().maxStorageBufferRange;
  views_.assign(inputs_.buffers.size(), {});
  for (size_t i = 0; i < inputs_.buffers.size(); ++i) {
    if (inputs_.buffers[i] == nullptr) {
      continue;
    }
    const auto* buffer = dynamic_cast<const VulkanBuffer*>(inputs_.buffers[i]);
    LaunchFacts::Param& param = inputs_.facts.params[i];
    if (buffer == nullptr) {
      return Internal("Argument " + ParamName(executable.artifact(), i) + " is not memory of " + context_.name() + ".");
    }
    const uint64_t offset = param.value == 0 ? 0 : param.start;
    param.start = offset % alignment;
    if (param.value > range_max - param.start) {
      return FailedPrecondition("The view that kernel \"" + executable.artifact().entry + "\" takes as " +
                                ParamName(executable.artifact(), i) + " (" + std::to_string(param.value) +
                                " bytes) is larger than what " + context_.name() + " can bind (" +
                                std::to_string(range_max) + " bytes).");
    }
    // Emitted code may read whole words at a view's end; a tenant's code learns the view's size from the bound range.
    const uint64_t reach = std::max<uint64_t>(param.start + param.value, is_native ? 4 : 16);
    const uint64_t range = is_native ? reach : std::min(RoundUp(reach, 16), range_max);
    views_[i] = {buffer->handle(), offset - param.start, range};
  }
  return absl::OkStatus();
}

void VulkanFlight::FillValues(const VulkanExecutable& executable, const gpu::Part& part, uint32_t trap_index) {
  const GpuVariant& variant = executable.artifact().gpu.variants[part.variant];
  values_.assign(std::max<uint64_t>(16, RoundUp(variant.push_bytes, 16)), 0);
  const gpu::ValueSource source{&inputs_.facts, &part, inputs_.base, inputs_.group_base, trap_index};
  for (const GpuArgument& argument : variant.arguments) {
    if (IsValue(argument.kind)) {
      // Safety: ValidateGpuCode has shown that it fits in push_bytes. The device is little-endian, like the host.
      const uint64_t bits = gpu::ValueOf(argument, source);
      std::memcpy(values_.data() + argument.offset, &bits, argument.bytes);
    }
  }
}

Status VulkanFlight::RecordPart(VulkanExecutable& executable, const gpu::Part& part, uint32_t trap_index) {
  const GpuVariant& variant = executable.artifact().gpu.variants[part.variant];
  const VariantLayout& layout = executable.pipelines().layout(part.variant);
  for (int d = 0; d < 3; ++d) {
    if (part.groups[d] > context_.limits().maxComputeWorkGroupCount[d]) {
      return FailedPrecondition("The launch of kernel \"" + variant.entry + "\" has " + std::to_string(part.groups[d]) +
                                " groups in dimension " + std::to_string(d) + "; the limit of " + context_.name() +
                                " is " + std::to_string(context_.limits().maxComputeWorkGroupCount[d]) + ".");
    }
  }
  HPVMD_ASSIGN_OR_RETURN(VkPipeline pipeline, executable.pipelines().Get(part.variant, part.group));
  FillValues(executable, part, trap_index);
  VkDescriptorBufferInfo facts_buffer{};
  if (layout.has_facts_buffer) {
    HPVMD_ASSIGN_OR_RETURN(const Transfers::Piece piece, transfers_.Take(values_.size()));
    std::memcpy(piece.data, values_.data(), values_.size());
    facts_buffer = {piece.buffer, piece.offset, piece.bytes};
  }
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  const DeviceFunctions& vk = context_.vk();
  vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  const uint32_t record = executable.artifact().gpu.is_native ? trap_index : kAllRecords;
  HPVMD_RETURN_IF_ERROR(FindBuffers(layout, facts_buffer, record));
  HPVMD_RETURN_IF_ERROR(BindBuffers(layout));
  if (!layout.has_facts_buffer && variant.push_bytes != 0) {
    vk.CmdPushConstants(commands, layout.pipeline.get(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                        static_cast<uint32_t>(RoundUp(variant.push_bytes, 4)), values_.data());
  }
  vk.CmdDispatch(commands, part.groups[0], part.groups[1], part.groups[2]);
  can_trap_ |= variant.can_trap;
  return absl::OkStatus();
}

// Finds the buffer for each binding of a variant, as infos_.
Status VulkanFlight::FindBuffers(const VariantLayout& layout, const VkDescriptorBufferInfo& facts_buffer,
                                 uint32_t record) {
  infos_.resize(layout.bindings.size());
  for (size_t i = 0; i < infos_.size(); ++i) {
    const Binding& binding = layout.bindings[i];
    if (binding.kind == Binding::Kind::kFacts) {
      infos_[i] = facts_buffer;
    } else if (binding.kind == Binding::Kind::kTrapRecords && record != kAllRecords) {
      infos_[i] = {slot_->traps(), record * sizeof(GpuTrapRecord), sizeof(GpuTrapRecord)};
    } else if (binding.kind == Binding::Kind::kTrapRecords) {
      infos_[i] = {slot_->traps(), 0, slot_->trap_bytes()};
    } else {
      infos_[i] = views_[binding.param];
      if (!binding.takes_start && inputs_.facts.params[binding.param].start != 0) {
        return FailedPrecondition("The buffer at set " + std::to_string(binding.set) + ", binding " +
                                  std::to_string(binding.binding) + " begins " +
                                  std::to_string(inputs_.facts.params[binding.param].start) +
                                  " bytes after a multiple of " + std::to_string(context_.binding_alignment()) +
                                  " bytes; " + context_.name() + " can bind buffers only at such multiples.");
      }
    }
  }
  return absl::OkStatus();
}

// Binds infos_.
Status VulkanFlight::BindBuffers(const VariantLayout& layout) {
  const size_t count = layout.bindings.size();
  if (count == 0) {
    return absl::OkStatus();
  }
  writes_.assign(count, Typed<VkWriteDescriptorSet>(VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET));
  for (size_t i = 0; i < count; ++i) {
    writes_[i].dstBinding = layout.bindings[i].binding;
    writes_[i].descriptorCount = 1;
    writes_[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    writes_[i].pBufferInfo = &infos_[i];
  }
  if (!layout.pushes_descriptors) {
    return BindSets(layout);
  }
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  context_.vk().CmdPushDescriptorSetKHR(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout.pipeline.get(), 0,
                                        static_cast<uint32_t>(count), writes_.data());
  return absl::OkStatus();
}

Status VulkanFlight::BindSets(const VariantLayout& layout) {
  std::vector<VkDescriptorSet> sets;
  for (const Owned<VkDescriptorSetLayout>& set : layout.sets) {
    HPVMD_ASSIGN_OR_RETURN(VkDescriptorSet handle, slot_->NextSet(set.get()));
    sets.push_back(handle);
  }
  for (size_t i = 0; i < layout.bindings.size(); ++i) {
    writes_[i].dstSet = sets[layout.bindings[i].set];
  }
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  const DeviceFunctions& vk = context_.vk();
  vk.UpdateDescriptorSets(context_.device(), static_cast<uint32_t>(writes_.size()), writes_.data(), 0, nullptr);
  vk.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout.pipeline.get(), 0,
                           static_cast<uint32_t>(sets.size()), sets.data(), 0, nullptr);
  return absl::OkStatus();
}

// Copies whole units of 16 bytes, as many as one dispatch reaches; returns the number of bytes, 0 when a copy command
// should be used.
StatusOr<uint64_t> VulkanFlight::RecordKernelCopy(VulkanBuffer& source, VulkanBuffer& target,
                                                  const VkBufferCopy& region) {
  const uint64_t alignment = context_.binding_alignment();
  if (!deck_.copies_by_kernel || region.size < kCopyKernelFromBytes || region.srcOffset % alignment != 0 ||
      region.dstOffset % alignment != 0) {
    return 0;
  }
  if (deck_.copy_kernel == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(deck_.copy_kernel, CreateCopyKernel(context_));
  }
  constexpr uint64_t kGroupBytes = kCopyGroup * kCopyUnit;
  const uint64_t bytes_max = std::min<uint64_t>(context_.limits().maxStorageBufferRange,
                                                context_.limits().maxComputeWorkGroupCount[0] * kGroupBytes);
  const uint64_t groups = std::min(region.size, bytes_max) / kGroupBytes;
  writer_.Reads(source, region.srcOffset, groups * kGroupBytes);
  writer_.Writes(target, region.dstOffset, groups * kGroupBytes);
  HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kDispatch));
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  HPVMD_ASSIGN_OR_RETURN(VkPipeline pipeline, deck_.copy_kernel->Get(0, {kCopyGroup, 1, 1}));
  context_.vk().CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  infos_ = {{source.handle(), region.srcOffset, groups * kGroupBytes},
            {target.handle(), region.dstOffset, groups * kGroupBytes}};
  HPVMD_RETURN_IF_ERROR(BindBuffers(deck_.copy_kernel->layout(0)));
  context_.vk().CmdDispatch(commands, static_cast<uint32_t>(groups), 1, 1);
  return groups * kGroupBytes;
}

}  // namespace hpvm::vulkan
