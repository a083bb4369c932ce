// SPDX-License-Identifier: Apache-2.0
// A buffer of a Vulkan device.
//
// Its memory is zeroed by the kernels' queue, before every submission there that could name it; other lanes wait for
// that. Mapped memory is zeroed by the host.
#ifndef HPVMD_BACKENDS_VULKAN_BUFFER_H_
#define HPVMD_BACKENDS_VULKAN_BUFFER_H_

#include <memory>
#include <mutex>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/known_words.h"
#include "backends/vulkan/memory.h"
#include "base/io/fd.h"

namespace hpvm::vulkan {

class VulkanBuffer final : public gpu::GpuBuffer {
 public:
  VulkanBuffer(Context& context, Storage storage, uint64_t bytes, UniqueFd exported, uint64_t zeroed_at)
      : context_(context),
        storage_(std::move(storage)),
        bytes_(bytes),
        exported_(std::move(exported)),
        zeroed_at_(zeroed_at) {}
  // Callers free buffers when their submissions are done; zeroing of the memory may still be in progress.
  ~VulkanBuffer() override { context_.Wait(zeroed_at()).IgnoreError(); }

  uint64_t bytes() const override { return bytes_; }
  // Null even when the memory is mapped: a DeviceInfo::host_visible device would have to accept any host memory as a
  // buffer, and Vulkan accepts whole pages at best. Copies use the mapping.
  uint8_t* host() override { return nullptr; }
  bool is_shared() const override { return exported_.valid(); }
  ExportedMemory exported() const override {
    return {exported_.get(), exported_.valid() ? storage_.memory_bytes() : 0};
  }

  VkBuffer handle() const { return storage_.buffer(); }
  uint8_t* mapped() const { return storage_.mapped(); }
  const Context& context() const { return context_; }

  // The point from which on it is zero.
  LanePoint zeroed_at() const { return {Lane::kCompute, zeroed_at_}; }

  // Set when the memory is mapped, in which case there are no copy lanes; belongs to the submit thread: the queue's
  // value after which no command uses the buffer; kUseOpen while a command that uses it is being recorded.
  uint64_t used_until = 0;
  static constexpr uint64_t kUseOpen = ~uint64_t{0};

 private:
  Context& context_;
  Storage storage_;
  const uint64_t bytes_;
  UniqueFd exported_;
  const uint64_t zeroed_at_;
};

// Zeroes new memory. Thread-safe.
class Zeroer {
 public:
  explicit Zeroer(Context& context) : context_(context) {}
  // Returns the queue's value after which the memory is zero; 0 when it is already.
  StatusOr<uint64_t> Zero(const Storage& storage);

 private:
  // Number of buffers being zeroed at once, before one waits for the first.
  static constexpr size_t kTurns = 8;
  struct Turn {
    Owned<VkCommandPool> pool;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    uint64_t value = 0;
  };
  Status Prepare(Turn& turn);

  Context& context_;
  std::mutex mutex_;
  Turn turns_[kTurns];  // Guarded by mutex_.
  size_t next_ = 0;     // Guarded by mutex_.
};

StatusOr<std::unique_ptr<Buffer>> AllocateVulkanBuffer(Context& context, Memory& memory, Zeroer& zeroer,
                                                       const BufferSpec& spec);

// Creates a pool of the queue family of the lane, and a command buffer of it.
StatusOr<Owned<VkCommandPool>> CreateCommandPool(Context& context, Lane lane);
StatusOr<VkCommandBuffer> AllocateCommands(Context& context, VkCommandPool pool);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_BUFFER_H_
