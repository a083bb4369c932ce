// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/writer.h"

#include <algorithm>

namespace hpvm::vulkan {
namespace {

// Scanning this many accesses costs less than a barrier.
constexpr size_t kPastMax = 64;

constexpr VkPipelineStageFlags kShaders = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
constexpr VkPipelineStageFlags kTransfers = VK_PIPELINE_STAGE_TRANSFER_BIT;

VkAccessFlags WritesOf(VkPipelineStageFlags stages) {
  return ((stages & kShaders) != 0 ? VK_ACCESS_SHADER_WRITE_BIT : 0) |
         ((stages & kTransfers) != 0 ? VK_ACCESS_TRANSFER_WRITE_BIT : 0);
}

VkAccessFlags AccessesOf(VkPipelineStageFlags stages) {
  return WritesOf(stages) | ((stages & kShaders) != 0 ? VK_ACCESS_SHADER_READ_BIT : 0) |
         ((stages & kTransfers) != 0 ? VK_ACCESS_TRANSFER_READ_BIT : 0);
}

}  // namespace

// Makes all earlier writes, by any command, visible to later accesses.
void Writer::Wait(VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags accesses) {
  auto barrier = Typed<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  barrier.srcAccessMask = WritesOf(from);
  barrier.dstAccessMask = accesses;
  context_.vk().CmdPipelineBarrier(open_, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

void Writer::WaitFor(const LanePoint& point) {
  if (point.lane == lane_) {
    return;  // Guaranteed by the queue's order.
  }
  for (LanePoint& wait : waits_) {
    if (wait.lane == point.lane) {
      wait.value = std::max(wait.value, point.value);
      return;
    }
  }
  waits_.push_back(point);
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
  const VkPipelineStageFlags ours = context_.stages(lane_);
  Wait(ours, ours, AccessesOf(ours));
  settled_dispatches_ = ++epoch_;
  has_transfers_ = has_forgotten_ = false;
  past_.clear();
  return absl::OkStatus();
}

bool Writer::IsBarrierDue(Stage stage) const {
  if (stage == Stage::kTransfer && has_forgotten_) {
    return true;
  }
  const uint64_t settled = stage == Stage::kDispatch ? settled_dispatches_ : 0;
  for (auto past = past_.rbegin(); past != past_.rend() && past->epoch >= settled; ++past) {
    for (const Access& access : accesses_) {
      if (past->buffer == access.buffer && past->begin < access.end && access.begin < past->end &&
          (past->writes || access.writes)) {
        return true;
      }
    }
  }
  return false;
}

// Records the command's accesses for later ones.
void Writer::Remember() {
  if (past_.size() + accesses_.size() > kPastMax) {
    const auto is_over = [&](const Access& past) { return past.epoch < settled_dispatches_; };
    has_forgotten_ |= std::erase_if(past_, is_over) != 0;
  }
  for (Access& access : accesses_) {
    access.epoch = epoch_;
    past_.push_back(access);
    if (access.buffer->mapped() != nullptr && access.buffer->used_until != VulkanBuffer::kUseOpen) {
      access.buffer->used_until = VulkanBuffer::kUseOpen;
      in_use_.push_back(access.buffer);
    }
    if (lane_ != Lane::kCompute && !context_.IsReached(access.buffer->zeroed_at())) {
      WaitFor(access.buffer->zeroed_at());
    }
  }
  accesses_.clear();
}

Status Writer::Settle(Stage stage) {
  HPVMD_RETURN_IF_ERROR(Open().status());
  const bool is_dispatch = stage == Stage::kDispatch;
  if (past_.size() >= 2 * kPastMax) {
    HPVMD_RETURN_IF_ERROR(Barrier());  // With this many accesses, one more barrier is negligible.
  } else if (IsBarrierDue(stage)) {
    if (is_dispatch && !has_transfers_) {
      Wait(kShaders, kShaders, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
      settled_dispatches_ = ++epoch_;
    } else {
      HPVMD_RETURN_IF_ERROR(Barrier());
    }
  }
  has_transfers_ |= !is_dispatch;
  Remember();
  return absl::OkStatus();
}

Status Writer::Flush() {
  if (open_ == VK_NULL_HANDLE) {
    return absl::OkStatus();
  }
  VkCommandBuffer commands = std::exchange(open_, VK_NULL_HANDLE);
  HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().EndCommandBuffer(commands), "Recording commands"));
  HPVMD_ASSIGN_OR_RETURN(value_, context_.Submit(lane_, commands, waits_));
  waits_.clear();
  return absl::OkStatus();
}

Status Writer::FlushForHost() {
  HPVMD_RETURN_IF_ERROR(Open().status());
  Wait(context_.stages(lane_), VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  return Flush();
}

void Writer::EndUse() {
  for (VulkanBuffer* buffer : in_use_) {
    buffer->used_until = value_;
  }
  in_use_.clear();
}

}  // namespace hpvm::vulkan
