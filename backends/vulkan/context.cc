// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/context.h"

#include <algorithm>

namespace hpvm::vulkan {

StatusOr<std::unique_ptr<Context>> Context::Create(const Instance& instance, uint32_t index) {
  const size_t count = instance.devices().size();
  if (index >= count) {
    return NotFound("Device \"vulkan:" + std::to_string(index) + "\" does not exist; there are " +
                    std::to_string(count) + " devices of Vulkan 1.2 or later with a queue for compute.");
  }
  auto context = std::unique_ptr<Context>(new Context(instance, index));
  HPVMD_RETURN_IF_ERROR(context->Open());
  return context;
}

Context::Context(const Instance& instance, uint32_t index)
    : instance_(instance),
      physical_(instance_.devices()[index]),
      name_("vulkan:" + std::to_string(index) + " (" + physical_.properties.deviceName + ")"),
      binding_alignment_(std::max<uint64_t>(16, physical_.properties.limits.minStorageBufferOffsetAlignment)) {}

Status Context::Open() {
  FeatureChain features;
  ChooseFeatures(instance_.functions(), physical_, features);
  const float priority = 1.0f;
  auto queue_info = Typed<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
  queue_info.queueFamilyIndex = physical_.queue_family;
  queue_info.queueCount = 1;
  queue_info.pQueuePriorities = &priority;
  auto info = Typed<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
  info.pNext = &features.core;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue_info;
  info.enabledExtensionCount = static_cast<uint32_t>(features.extensions.size());
  info.ppEnabledExtensionNames = features.extensions.data();
  HPVMD_RETURN_IF_ERROR(
      Check(instance_.functions().CreateDevice(physical_.handle, &info, nullptr, &device_), "Opening the device"));
  HPVMD_RETURN_IF_ERROR(FindDeviceFunctions(instance_.functions(), device_, vk_));
  vk_.GetDeviceQueue(device_, physical_.queue_family, 0, &queue_);
  auto type = Typed<VkSemaphoreTypeCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  auto semaphore_info = Typed<VkSemaphoreCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO);
  semaphore_info.pNext = &type;
  return Check(vk_.CreateSemaphore(device_, &semaphore_info, nullptr, &finished_), "Creating a semaphore");
}

Context::~Context() {
  if (device_ == VK_NULL_HANDLE || vk_.DestroyDevice == nullptr) {
    return;
  }
  vk_.DeviceWaitIdle(device_);
  vk_.DestroySemaphore(device_, finished_, nullptr);
  vk_.DestroyDevice(device_, nullptr);
}

StatusOr<uint64_t> Context::Submit(VkCommandBuffer commands) {
  HPVMD_RETURN_IF_ERROR(lost());
  std::lock_guard lock(queue_mutex_);
  const uint64_t value = submitted_ + 1;
  auto timeline = Typed<VkTimelineSemaphoreSubmitInfo>(VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &value;
  auto info = Typed<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  info.pNext = &timeline;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &finished_;
  HPVMD_RETURN_IF_ERROR(Check(vk_.QueueSubmit(queue_, 1, &info, VK_NULL_HANDLE), "Handing commands to the queue"));
  submitted_ = value;
  return value;
}

Status Context::Wait(uint64_t value) {
  if (reached_.load(std::memory_order_acquire) >= value) {
    return absl::OkStatus();
  }
  auto info = Typed<VkSemaphoreWaitInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO);
  info.semaphoreCount = 1;
  info.pSemaphores = &finished_;
  info.pValues = &value;
  VkResult result = VK_TIMEOUT;
  while (result == VK_TIMEOUT) {
    // A device that is lost while another thread learns of it need not wake this one.
    HPVMD_RETURN_IF_ERROR(lost());
    result = vk_.WaitSemaphores(device_, &info, uint64_t{1'000'000'000});
  }
  HPVMD_RETURN_IF_ERROR(Check(result, "Waiting for the queue"));
  uint64_t known = reached_.load(std::memory_order_relaxed);
  while (known < value && !reached_.compare_exchange_weak(known, value, std::memory_order_release)) {
  }
  return absl::OkStatus();
}

bool Context::IsReached(uint64_t value) {
  if (reached_.load(std::memory_order_acquire) >= value) {
    return true;
  }
  uint64_t counter = 0;
  return vk_.GetSemaphoreCounterValue(device_, finished_, &counter) == VK_SUCCESS && counter >= value;
}

Status Context::Check(VkResult result, const std::string& doing) {
  if (result == VK_SUCCESS) [[likely]] {
    return absl::OkStatus();
  }
  if (result == VK_ERROR_DEVICE_LOST) {
    is_lost_.store(true, std::memory_order_relaxed);
    return lost();
  }
  return ToStatus(result, doing + " on " + name_);
}

Status Context::lost() const {
  return is_lost_.load(std::memory_order_relaxed)
             ? Unavailable("Device " + name_ + " is lost: its driver has given it up, and it must be opened anew.")
             : absl::OkStatus();
}

}  // namespace hpvm::vulkan
