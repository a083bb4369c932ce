// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/pin.h"

#include <bit>

namespace hpvm::vulkan {

std::unique_ptr<Pin> Pin::Make(std::shared_ptr<Context> context, const HostBlock& block) {
  constexpr VkExternalMemoryHandleTypeFlagBits kHandle = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  const DeviceFunctions& vk = context->vk();
  const VkDevice device = context->device();
  const uint64_t alignment = context->physical().enabled.pin_alignment;
  const uint64_t bytes = (block.bytes() + alignment - 1) / alignment * alignment;
  auto pin = std::make_unique<Pin>();
  pin->base_ = block.data();
  auto pointer = Typed<VkMemoryHostPointerPropertiesEXT>(VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT);
  if (!block.is_writable() || reinterpret_cast<uintptr_t>(block.data()) % alignment != 0 ||
      vk.GetMemoryHostPointerPropertiesEXT(device, kHandle, block.data(), &pointer) != VK_SUCCESS) {
    return nullptr;
  }
  auto external = Typed<VkExternalMemoryBufferCreateInfo>(VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO);
  external.handleTypes = kHandle;
  auto info = Typed<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.pNext = &external;
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  const std::vector<uint32_t>& families = context->families();
  info.sharingMode = families.size() > 1 ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE;
  info.queueFamilyIndexCount = static_cast<uint32_t>(families.size());
  info.pQueueFamilyIndices = families.data();
  VkBuffer buffer = VK_NULL_HANDLE;
  if (vk.CreateBuffer(device, &info, nullptr, &buffer) != VK_SUCCESS) {
    return nullptr;
  }
  pin->buffer_ = {device, buffer, vk.DestroyBuffer};
  VkMemoryRequirements needs{};
  vk.GetBufferMemoryRequirements(device, buffer, &needs);
  const uint32_t types = needs.memoryTypeBits & pointer.memoryTypeBits;
  if (types == 0 || needs.size > bytes) {
    return nullptr;
  }
  auto import = Typed<VkImportMemoryHostPointerInfoEXT>(VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT);
  import.handleType = kHandle;
  import.pHostPointer = block.data();
  auto allocation = Typed<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
  allocation.pNext = &import;
  allocation.allocationSize = bytes;
  allocation.memoryTypeIndex = static_cast<uint32_t>(std::countr_zero(types));
  VkDeviceMemory memory = VK_NULL_HANDLE;
  if (vk.AllocateMemory(device, &allocation, nullptr, &memory) != VK_SUCCESS) {
    return nullptr;
  }
  pin->memory_ = {device, memory, vk.FreeMemory};
  if (vk.BindBufferMemory(device, buffer, memory, 0) != VK_SUCCESS) {
    return nullptr;
  }
  pin->context_ = std::move(context);
  return pin;
}

}  // namespace hpvm::vulkan
