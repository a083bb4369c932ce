// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/writer.h"

namespace hpvm::vulkan {
namespace {

constexpr VkPipelineStageFlags kOurStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kOurWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kOurAccesses = kOurWrites | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

}  // namespace

// Everything written so far, by any command before, is there for what comes.
void Writer::Wait(VkPipelineStageFlags stages, VkAccessFlags accesses) {
  auto barrier = Typed<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  barrier.srcAccessMask = kOurWrites;
  barrier.dstAccessMask = accesses;
  context_.vk().CmdPipelineBarrier(open_, kOurStages, stages, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

StatusOr<VkCommandBuffer> Writer::Open() {
  if (open_ != VK_NULL_HANDLE) [[likely]] {
    return open_;
  }
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, slot_.NextCommands());
  auto info = Typed<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().BeginCommandBuffer(commands, &info), "Recording commands"));
  open_ = commands;
  if (!has_begun_) {
    has_begun_ = true;
    Wait(kOurStages, kOurAccesses);
    ++epoch_;
  }
  return open_;
}

void Writer::Accesses(VulkanBuffer& buffer, bool writes) {
  // Behind what was submitted before, the first command waits anyway.
  is_barrier_due_ |= has_begun_ && (buffer.write_epoch == epoch_ || (writes && buffer.read_epoch == epoch_));
  accesses_.push_back({&buffer, writes});
}

Status Writer::Barrier() {
  HPVMD_RETURN_IF_ERROR(Open().status());
  Wait(kOurStages, kOurAccesses);
  ++epoch_;
  return absl::OkStatus();
}

Status Writer::Settle() {
  HPVMD_RETURN_IF_ERROR(Open().status());
  if (is_barrier_due_) {
    HPVMD_RETURN_IF_ERROR(Barrier());
  }
  is_barrier_due_ = false;
  for (const Access& access : accesses_) {
    (access.writes ? access.buffer->write_epoch : access.buffer->read_epoch) = epoch_;
    if (access.buffer->used_until != VulkanBuffer::kUseOpen) {
      access.buffer->used_until = VulkanBuffer::kUseOpen;
      in_use_.push_back(access.buffer);
    }
  }
  accesses_.clear();
  return absl::OkStatus();
}

Status Writer::Flush() {
  if (open_ == VK_NULL_HANDLE) {
    return absl::OkStatus();
  }
  VkCommandBuffer commands = std::exchange(open_, VK_NULL_HANDLE);
  HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().EndCommandBuffer(commands), "Recording commands"));
  HPVMD_ASSIGN_OR_RETURN(value_, context_.Submit(commands));
  return absl::OkStatus();
}

Status Writer::FlushForHost() {
  HPVMD_RETURN_IF_ERROR(Open().status());
  Wait(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  return Flush();
}

void Writer::EndUse() {
  for (VulkanBuffer* buffer : in_use_) {
    buffer->used_until = value_;
  }
  in_use_.clear();
}

}  // namespace hpvm::vulkan
