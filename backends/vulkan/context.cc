// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/context.h"

#include <algorithm>

namespace hpvm::vulkan {

StatusOr<std::unique_ptr<Context>> Context::Create(const Instance& instance, uint32_t index, bool shares_queue) {
  const size_t count = instance.devices().size();
  if (index >= count) {
    return NotFound("Device \"vulkan:" + std::to_string(index) + "\" does not exist; there are " +
                    std::to_string(count) + " devices of Vulkan 1.2 or later with a queue for compute.");
  }
  auto context = std::unique_ptr<Context>(new Context(instance, index, shares_queue));
  HPVMD_RETURN_IF_ERROR(context->Open());
  return context;
}

Context::Context(const Instance& instance, uint32_t index, bool shares_queue)
    : instance_(instance),
      physical_(instance_.devices()[index]),
      name_("vulkan:" + std::to_string(index) + " (" + physical_.properties.deviceName + ")"),
      binding_alignment_(std::max<uint64_t>(16, physical_.properties.limits.minStorageBufferOffsetAlignment)),
      shares_queue_(shares_queue && !physical_.info.has_copy_lanes) {}

Status Context::OpenDevice() {
  FeatureChain features;
  ChooseFeatures(instance_.functions(), physical_, features);
  const uint32_t copy_queues = physical_.info.has_copy_lanes ? physical_.copy_queues : 0;
  const bool is_one_family = physical_.copy_family == physical_.queue_family;
  const std::array<float, kLanes> priorities{1.0f, 1.0f, 1.0f};
  std::vector<VkDeviceQueueCreateInfo> queues(copy_queues != 0 && !is_one_family ? 2 : 1);
  for (VkDeviceQueueCreateInfo& info : queues) {
    info = Typed<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
    info.pQueuePriorities = priorities.data();
  }
  queues.back().queueFamilyIndex = physical_.copy_family;
  queues.back().queueCount = copy_queues;
  queues.front().queueFamilyIndex = physical_.queue_family;
  queues.front().queueCount = is_one_family ? 1 + copy_queues : 1;
  auto info = Typed<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
  info.pNext = &features.core;
  info.queueCreateInfoCount = static_cast<uint32_t>(queues.size());
  info.pQueueCreateInfos = queues.data();
  info.enabledExtensionCount = static_cast<uint32_t>(features.extensions.size());
  info.ppEnabledExtensionNames = features.extensions.data();
  HPVMD_RETURN_IF_ERROR(
      Check(instance_.functions().CreateDevice(physical_.handle, &info, nullptr, &device_), "Opening the device"));
  HPVMD_RETURN_IF_ERROR(FindDeviceFunctions(instance_.functions(), device_, vk_));
  vk_.GetDeviceQueue(device_, physical_.queue_family, 0, &queues_[0].handle);
  for (uint32_t i = 0; i < copy_queues; ++i) {
    vk_.GetDeviceQueue(device_, physical_.copy_family, is_one_family ? 1 + i : i, &queues_[1 + i].handle);
  }
  return absl::OkStatus();
}

Status Context::OpenLine(Line& line, uint32_t family, uint32_t queue) {
  line.family = family;
  line.queue = queue;
  line.stages = VK_PIPELINE_STAGE_TRANSFER_BIT;
  if (family == physical_.queue_family) {
    line.stages |= VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
  }
  if (std::find(families_.begin(), families_.end(), family) == families_.end()) {
    families_.push_back(family);
  }
  auto type = Typed<VkSemaphoreTypeCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  auto semaphore_info = Typed<VkSemaphoreCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO);
  semaphore_info.pNext = &type;
  return Check(vk_.CreateSemaphore(device_, &semaphore_info, nullptr, &line.finished), "Creating a semaphore");
}

Status Context::Open() {
  HPVMD_RETURN_IF_ERROR(OpenDevice());
  HPVMD_RETURN_IF_ERROR(OpenLine(lines_[0], physical_.queue_family, 0));
  for (uint32_t i = 1; i < kLanes && has_copy_lanes(); ++i) {
    const bool is_own = !shares_queue_;
    HPVMD_RETURN_IF_ERROR(OpenLine(lines_[i], is_own ? physical_.copy_family : physical_.queue_family,
                                   is_own ? std::min(i, physical_.copy_queues) : 0));
  }
  return absl::OkStatus();
}

Context::~Context() {
  if (device_ == VK_NULL_HANDLE || vk_.DestroyDevice == nullptr) {
    return;
  }
  vk_.DeviceWaitIdle(device_);
  for (const Line& line : lines_) {
    vk_.DestroySemaphore(device_, line.finished, nullptr);
  }
  vk_.DestroyDevice(device_, nullptr);
}

StatusOr<uint64_t> Context::Submit(Lane lane, VkCommandBuffer commands, std::span<const LanePoint> waits) {
  HPVMD_RETURN_IF_ERROR(lost());
  std::vector<VkSemaphore> semaphores;
  std::vector<uint64_t> values;
  for (const LanePoint& wait : waits) {
    semaphores.push_back(lines_[static_cast<size_t>(wait.lane)].finished);
    values.push_back(wait.value);
  }
  const std::vector<VkPipelineStageFlags> stages(waits.size(), VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
  Line& line = lines_[static_cast<size_t>(lane)];
  Queue& queue = queues_[line.queue];
  std::lock_guard lock(queue.mutex);
  const uint64_t value = line.submitted + 1;
  auto timeline = Typed<VkTimelineSemaphoreSubmitInfo>(VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
  timeline.waitSemaphoreValueCount = static_cast<uint32_t>(values.size());
  timeline.pWaitSemaphoreValues = values.data();
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &value;
  auto info = Typed<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  info.pNext = &timeline;
  info.waitSemaphoreCount = static_cast<uint32_t>(semaphores.size());
  info.pWaitSemaphores = semaphores.data();
  info.pWaitDstStageMask = stages.data();
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &line.finished;
  HPVMD_RETURN_IF_ERROR(
      Check(vk_.QueueSubmit(queue.handle, 1, &info, VK_NULL_HANDLE), "Submitting commands to the queue"));
  line.submitted = value;
  return value;
}

uint64_t Context::submitted(Lane lane) {
  Line& line = lines_[static_cast<size_t>(lane)];
  std::lock_guard lock(queues_[line.queue].mutex);
  return line.submitted;
}

Status Context::Wait(const LanePoint& point) {
  Line& line = lines_[static_cast<size_t>(point.lane)];
  if (line.reached.load(std::memory_order_acquire) >= point.value) {
    return absl::OkStatus();
  }
  auto info = Typed<VkSemaphoreWaitInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO);
  info.semaphoreCount = 1;
  info.pSemaphores = &line.finished;
  info.pValues = &point.value;
  VkResult result = VK_TIMEOUT;
  while (result == VK_TIMEOUT) {
    // When another thread detects the loss of the device, this thread might not be woken.
    HPVMD_RETURN_IF_ERROR(lost());
    result = vk_.WaitSemaphores(device_, &info, uint64_t{1'000'000'000});
  }
  HPVMD_RETURN_IF_ERROR(Check(result, "Waiting for the queue"));
  uint64_t known = line.reached.load(std::memory_order_relaxed);
  while (known < point.value && !line.reached.compare_exchange_weak(known, point.value, std::memory_order_release)) {
  }
  return absl::OkStatus();
}

bool Context::IsReached(const LanePoint& point) {
  const Line& line = lines_[static_cast<size_t>(point.lane)];
  if (line.reached.load(std::memory_order_acquire) >= point.value) {
    return true;
  }
  uint64_t counter = 0;
  return vk_.GetSemaphoreCounterValue(device_, line.finished, &counter) == VK_SUCCESS && counter >= point.value;
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
             ? Unavailable("Device " + name_ +
                           " is lost: its driver reports it as lost; the device must be opened again.")
             : absl::OkStatus();
}

}  // namespace hpvm::vulkan
