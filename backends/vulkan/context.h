// SPDX-License-Identifier: Apache-2.0
// Context is one open device: its functions, a queue for each lane with the semaphore that counts the queue's finished
// work, and the status of a lost device.
//
// Values of a lane count calls of Submit; a value is reached when everything of that call and of all earlier calls is
// done. Everything here is thread-safe.
#ifndef HPVMD_BACKENDS_VULKAN_CONTEXT_H_
#define HPVMD_BACKENDS_VULKAN_CONTEXT_H_

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/contract/host_block.h"
#include "backends/vulkan/instance.h"

namespace hpvm::vulkan {

// Owned is a handle that is destroyed with its owner, before the device.
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

struct LanePoint {
  Lane lane = Lane::kCompute;
  uint64_t value = 0;
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  // `shares_queue`, for tests: there are copy lanes even if the device has no queues for copies; they use the kernels'
  // queue.
  static StatusOr<std::unique_ptr<Context>> Create(const Instance& instance, uint32_t index, bool shares_queue = false);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DeviceFunctions& vk() const { return vk_; }
  VkDevice device() const { return device_; }
  const PhysicalDevice& physical() const { return physical_; }
  const VkPhysicalDeviceLimits& limits() const { return physical_.properties.limits; }
  // Returns "vulkan:0 (NVIDIA H200)".
  const std::string& name() const { return name_; }
  // Offsets at which buffers are bound are multiples of this, and of 16.
  uint64_t binding_alignment() const { return binding_alignment_; }

  // The device's number in host blocks; 0: copies always use staging memory. When there are no copy lanes, host and
  // device share memory.
  uint64_t pinner() const { return physical_.enabled.pin_alignment != 0 && has_copy_lanes() ? pinner_ : 0; }

  bool has_copy_lanes() const { return shares_queue_ || physical_.info.has_copy_lanes; }
  uint32_t family(Lane lane) const { return lines_[static_cast<size_t>(lane)].family; }
  // The stages that a lane's queue supports: compute shaders and transfers, or transfers alone.
  VkPipelineStageFlags stages(Lane lane) const { return lines_[static_cast<size_t>(lane)].stages; }
  // The queue families that use a buffer; only one when all lanes use it.
  const std::vector<uint32_t>& families() const { return families_; }

  // Submits a recorded command buffer to the lane's queue. It and all later ones begin when `waits` are reached.
  // Returns the value that it will reach.
  StatusOr<uint64_t> Submit(Lane lane, VkCommandBuffer commands, std::span<const LanePoint> waits = {});
  // Returns the last value that Submit returned.
  uint64_t submitted(Lane lane);
  // Waits without a time limit; returns an error when the device is lost.
  Status Wait(const LanePoint& point);
  bool IsReached(const LanePoint& point);

  // Like ToStatus, with the device's name; once lost, the device stays lost for every later Submit and Wait.
  Status Check(VkResult result, const std::string& doing);
  Status lost() const;

 private:
  // A lane's queue.
  struct Line {
    uint32_t family = 0;
    uint32_t queue = 0;  // Index in queues_.
    VkPipelineStageFlags stages = 0;
    VkSemaphore finished = VK_NULL_HANDLE;
    std::atomic<uint64_t> reached{0};  // A lower bound of the reached value.
    uint64_t submitted = 0;            // Guarded by the queue's mutex.
  };
  struct Queue {
    VkQueue handle = VK_NULL_HANDLE;
    std::mutex mutex;  // Held while the handle is used.
  };

  Context(const Instance& instance, uint32_t index, bool shares_queue);
  Status Open();
  Status OpenDevice();
  Status OpenLine(Line& line, uint32_t family, uint32_t queue);

  const Instance& instance_;
  const PhysicalDevice& physical_;
  const std::string name_;
  const uint64_t pinner_ = HostBlock::NewDevice();
  uint64_t binding_alignment_ = 16;
  DeviceFunctions vk_;
  VkDevice device_ = VK_NULL_HANDLE;
  const bool shares_queue_;
  // For kernels, then for copies; as many as there are.
  std::array<Queue, kLanes> queues_;
  std::array<Line, kLanes> lines_;  // Indexed by lane; without copy lanes only the first.
  std::vector<uint32_t> families_;
  std::atomic<bool> is_lost_{false};
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_CONTEXT_H_
