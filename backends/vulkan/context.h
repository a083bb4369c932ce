// SPDX-License-Identifier: Apache-2.0
// One open device: its functions, its one queue with the semaphore that counts what the queue has finished, and what
// is said when it is lost.
//
// Values of the queue count calls of Submit; a value is reached when everything of that call and of all before it is
// done. Everything here may be called from any thread.
#ifndef HPVMD_BACKENDS_VULKAN_CONTEXT_H_
#define HPVMD_BACKENDS_VULKAN_CONTEXT_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "backends/vulkan/instance.h"

namespace hpvm::vulkan {

// A handle that is destroyed with its owner, before the device.
template <typename T>
class Owned {
 public:
  using Destroy = void(VKAPI_PTR*)(VkDevice, T, const VkAllocationCallbacks*);
  Owned() = default;
  Owned(VkDevice device, T handle, Destroy destroy) : device_(device), handle_(handle), destroy_(destroy) {}
  Owned(Owned&& other) noexcept { *this = std::move(other); }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~Owned() { reset(); }
  void reset() {
    if (handle_ != VK_NULL_HANDLE) {
      destroy_(device_, std::exchange(handle_, VK_NULL_HANDLE), nullptr);
    }
  }
  T get() const { return handle_; }

 private:
  VkDevice device_ = VK_NULL_HANDLE;
  T handle_ = VK_NULL_HANDLE;
  Destroy destroy_ = nullptr;
};

class Context {
 public:
  static StatusOr<std::unique_ptr<Context>> Create(const Instance& instance, uint32_t index);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DeviceFunctions& vk() const { return vk_; }
  VkDevice device() const { return device_; }
  const PhysicalDevice& physical() const { return physical_; }
  const VkPhysicalDeviceLimits& limits() const { return physical_.properties.limits; }
  // "vulkan:0 (NVIDIA H200)".
  const std::string& name() const { return name_; }
  // Offsets at which buffers are bound are multiples of this, and of 16.
  uint64_t binding_alignment() const { return binding_alignment_; }

  // Hands a recorded command buffer to the queue; returns the value that it will reach.
  StatusOr<uint64_t> Submit(VkCommandBuffer commands);
  // However long it takes; a status when the device is lost.
  Status Wait(uint64_t value);
  bool IsReached(uint64_t value);

  // ToStatus with the device's name; a lost device stays lost for every later Submit and Wait.
  Status Check(VkResult result, const std::string& doing);
  Status lost() const;

 private:
  Context(const Instance& instance, uint32_t index);
  Status Open();

  const Instance& instance_;
  const PhysicalDevice& physical_;
  const std::string name_;
  uint64_t binding_alignment_ = 16;
  DeviceFunctions vk_;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkSemaphore finished_ = VK_NULL_HANDLE;
  std::atomic<bool> is_lost_{false};
  std::atomic<uint64_t> reached_{0};  // At least so far.
  std::mutex queue_mutex_;
  uint64_t submitted_ = 0;  // Guarded by queue_mutex_.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_CONTEXT_H_
