// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/slot.h"

#include <algorithm>

#include "backends/vulkan/buffer.h"

namespace hpvm::vulkan {
namespace {

constexpr uint32_t kSetsOfPool = 256;
// At least as many as one set can hold (kKernelParamsMax plus two).
constexpr uint32_t kDescriptorsOfPool = 4096;
constexpr uint32_t kTrapRecordsMin = 64;

}  // namespace

StatusOr<std::unique_ptr<CommandSlot>> CommandSlot::Create(Context& context, Memory& memory, Lane lane) {
  auto slot = std::unique_ptr<CommandSlot>(new CommandSlot(context, memory));
  HPVMD_ASSIGN_OR_RETURN(slot->pool_, CreateCommandPool(context, lane));
  if (lane == Lane::kCompute && context.physical().timestamp_bits != 0) {
    auto info = Typed<VkQueryPoolCreateInfo>(VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO);
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = kTimestamps;
    VkQueryPool pool = VK_NULL_HANDLE;
    HPVMD_RETURN_IF_ERROR(
        context.Check(context.vk().CreateQueryPool(context.device(), &info, nullptr, &pool), "Creating a query pool"));
    slot->timestamps_ = {context.device(), pool, context.vk().DestroyQueryPool};
  }
  return slot;
}

Status CommandSlot::Reset() {
  commands_used_ = 0;
  descriptor_pool_ = 0;
  for (const Owned<VkDescriptorPool>& pool : descriptor_pools_) {
    context_.vk().ResetDescriptorPool(context_.device(), pool.get(), 0);
  }
  return context_.Check(context_.vk().ResetCommandPool(context_.device(), pool_.get(), 0), "Resetting a command pool");
}

StatusOr<VkCommandBuffer> CommandSlot::NextCommands() {
  if (commands_used_ == commands_.size()) {
    HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, AllocateCommands(context_, pool_.get()));
    commands_.push_back(commands);
  }
  return commands_[commands_used_++];
}

Status CommandSlot::AddDescriptorPool() {
  const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, kDescriptorsOfPool};
  auto info = Typed<VkDescriptorPoolCreateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO);
  info.maxSets = kSetsOfPool;
  info.poolSizeCount = 1;
  info.pPoolSizes = &size;
  VkDescriptorPool pool = VK_NULL_HANDLE;
  HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().CreateDescriptorPool(context_.device(), &info, nullptr, &pool),
                                       "Creating a descriptor pool"));
  descriptor_pools_.emplace_back(context_.device(), pool, context_.vk().DestroyDescriptorPool);
  return absl::OkStatus();
}

StatusOr<VkDescriptorSet> CommandSlot::NextSet(VkDescriptorSetLayout layout) {
  // A full pool returns an error, whatever filled it; a new pool holds any set.
  while (true) {
    const bool is_fresh = descriptor_pool_ == descriptor_pools_.size();
    if (is_fresh) {
      HPVMD_RETURN_IF_ERROR(AddDescriptorPool());
    }
    auto info = Typed<VkDescriptorSetAllocateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO);
    info.descriptorPool = descriptor_pools_[descriptor_pool_].get();
    info.descriptorSetCount = 1;
    info.pSetLayouts = &layout;
    VkDescriptorSet set = VK_NULL_HANDLE;
    const VkResult result = context_.vk().AllocateDescriptorSets(context_.device(), &info, &set);
    const bool is_full = result == VK_ERROR_OUT_OF_POOL_MEMORY || result == VK_ERROR_FRAGMENTED_POOL;
    if (!is_full || is_fresh) {
      HPVMD_RETURN_IF_ERROR(context_.Check(result, "Creating a descriptor set"));
      return set;
    }
    ++descriptor_pool_;
  }
}

Status CommandSlot::GrowTraps(uint32_t count) {
  if (count <= trap_capacity_) {
    return absl::OkStatus();
  }
  const uint64_t capacity = std::max<uint64_t>({count, 2 * trap_capacity_, kTrapRecordsMin});
  HPVMD_ASSIGN_OR_RETURN(Storage traps, memory_.Allocate(capacity * sizeof(GpuTrapRecord), MemoryClass::kDevice));
  HPVMD_ASSIGN_OR_RETURN(Storage read, memory_.Allocate(capacity * sizeof(GpuTrapRecord), MemoryClass::kHost));
  traps_ = std::move(traps);
  read_traps_ = std::move(read);
  trap_capacity_ = capacity;
  must_zero_traps = true;
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<CommandSlot>> CommandSlots::Take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<CommandSlot> slot = std::move(free_.back());
      free_.pop_back();
      return slot;
    }
  }
  return CommandSlot::Create(context_, memory_, lane_);
}

void CommandSlots::Give(std::unique_ptr<CommandSlot> slot) {
  if (slot->Reset().ok()) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(slot));
  }
}

}  // namespace hpvm::vulkan
