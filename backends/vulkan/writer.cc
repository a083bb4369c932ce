// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/writer.h"

#include <algorithm>

namespace hpvm::vulkan {
namespace {

constexpr VkPipelineStageFlags kOurStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kOurWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kOurAccesses = kOurWrites | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

}  // namespace

// Everything written so far, by any command before, is there for what comes.
void Writer::Wait(VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags accesses) {
  auto barrier = Typed<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  barrier.srcAccessMask = from == kOurStages ? kOurWrites : VkAccessFlags{VK_ACCESS_SHADER_WRITE_BIT};
  barrier.dstAccessMask = accesses;
  context_.vk().CmdPipelineBarrier(open_, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
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
    HPVMD_RETURN_IF_ERROR(Barrier());
  }
  return open_;
}

Status Writer::Barrier() {
  HPVMD_RETURN_IF_ERROR(Open().status());
  Wait(kOurStages, kOurStages, kOurAccesses);
  settled_dispatches_ = settled_transfers_ = ++epoch_;
  has_transfers_ = false;
  return absl::OkStatus();
}

bool Writer::IsBarrierDue(uint64_t settled) const {
  return std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& access) {
    return access.buffer->write_epoch >= settled || (access.writes && access.buffer->read_epoch >= settled);
  });
}

Status Writer::Settle(Stage stage) {
  HPVMD_RETURN_IF_ERROR(Open().status());
  const bool is_dispatch = stage == Stage::kDispatch;
  if (IsBarrierDue(is_dispatch ? settled_dispatches_ : settled_transfers_)) {
    if (is_dispatch && !has_transfers_) {
      Wait(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
           VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
      settled_dispatches_ = ++epoch_;
    } else {
      HPVMD_RETURN_IF_ERROR(Barrier());
    }
  }
  has_transfers_ |= !is_dispatch;
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
  Wait(kOurStages, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  return Flush();
}

void Writer::EndUse() {
  for (VulkanBuffer* buffer : in_use_) {
    buffer->used_until = value_;
  }
  in_use_.clear();
}

}  // namespace hpvm::vulkan
