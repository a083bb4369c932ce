// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/buffer.h"

#include <algorithm>
#include <cstring>

namespace hpvm::vulkan {

StatusOr<Owned<VkCommandPool>> CreateCommandPool(Context& context, Lane lane) {
  auto info = Typed<VkCommandPoolCreateInfo>(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO);
  info.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
  info.queueFamilyIndex = context.family(lane);
  VkCommandPool pool = VK_NULL_HANDLE;
  HPVMD_RETURN_IF_ERROR(context.Check(context.vk().CreateCommandPool(context.device(), &info, nullptr, &pool),
                                      "Creating a command pool"));
  return Owned<VkCommandPool>(context.device(), pool, context.vk().DestroyCommandPool);
}

StatusOr<VkCommandBuffer> AllocateCommands(Context& context, VkCommandPool pool) {
  auto info = Typed<VkCommandBufferAllocateInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
  info.commandPool = pool;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  HPVMD_RETURN_IF_ERROR(context.Check(context.vk().AllocateCommandBuffers(context.device(), &info, &commands),
                                      "Creating a command buffer"));
  return commands;
}

Status Zeroer::Prepare(Turn& turn) {
  if (turn.pool.get() == VK_NULL_HANDLE) {
    HPVMD_ASSIGN_OR_RETURN(turn.pool, CreateCommandPool(context_, Lane::kCompute));
    HPVMD_ASSIGN_OR_RETURN(turn.commands, AllocateCommands(context_, turn.pool.get()));
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(context_.Wait({Lane::kCompute, turn.value}));
  return context_.Check(context_.vk().ResetCommandPool(context_.device(), turn.pool.get(), 0),
                        "Resetting a command pool");
}

StatusOr<uint64_t> Zeroer::Zero(const Storage& storage) {
  if (storage.mapped() != nullptr) {
    std::memset(storage.mapped(), 0, storage.memory_bytes());
    return 0;
  }
  std::lock_guard lock(mutex_);
  Turn& turn = turns_[next_++ % kTurns];
  HPVMD_RETURN_IF_ERROR(Prepare(turn));
  auto info = Typed<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  const DeviceFunctions& vk = context_.vk();
  HPVMD_RETURN_IF_ERROR(context_.Check(vk.BeginCommandBuffer(turn.commands, &info), "Recording commands"));
  vk.CmdFillBuffer(turn.commands, storage.buffer(), 0, VK_WHOLE_SIZE, 0);
  HPVMD_RETURN_IF_ERROR(context_.Check(vk.EndCommandBuffer(turn.commands), "Recording commands"));
  HPVMD_ASSIGN_OR_RETURN(turn.value, context_.Submit(Lane::kCompute, turn.commands));
  return turn.value;
}

StatusOr<std::unique_ptr<Buffer>> AllocateVulkanBuffer(Context& context, Memory& memory, Zeroer& zeroer,
                                                       const BufferSpec& spec) {
  HPVMD_RETURN_IF_ERROR(context.lost());
  if (spec.import != nullptr || spec.shared != nullptr) {
    return Internal("Device " + context.name() + " imports no memory.");
  }
  if (spec.is_exported && !context.physical().info.exports_memory) {
    return Internal("Device " + context.name() + " exports no memory.");
  }
  HPVMD_ASSIGN_OR_RETURN(Storage storage, memory.Allocate(spec.bytes, MemoryClass::kDevice, spec.is_exported));
  UniqueFd exported;
  if (spec.is_exported) {
    auto info = Typed<VkMemoryGetFdInfoKHR>(VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR);
    info.memory = storage.memory();
    info.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    int fd = -1;
    HPVMD_RETURN_IF_ERROR(context.Check(context.vk().GetMemoryFdKHR(context.device(), &info, &fd), "Exporting memory"));
    exported.reset(fd);
  }
  HPVMD_ASSIGN_OR_RETURN(const uint64_t zeroed_at, zeroer.Zero(storage));
  if (spec.is_exported) {
    // Another driver's queue does not know this one. No ownership is transferred between submissions, which the engine
    // orders: for buffers a transfer has no effect on the drivers that share memory with OpenCL.
    HPVMD_RETURN_IF_ERROR(context.Wait({Lane::kCompute, zeroed_at}));
  }
  return std::make_unique<VulkanBuffer>(context, std::move(storage), spec.bytes, std::move(exported), zeroed_at);
}

}  // namespace hpvm::vulkan
