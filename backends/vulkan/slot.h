// SPDX-License-Identifier: Apache-2.0
// What a submission needs of Vulkan while it is recorded and runs, used again by later ones: command buffers,
// descriptor sets, timestamps, trap records.
#ifndef HPVMD_BACKENDS_VULKAN_SLOT_H_
#define HPVMD_BACKENDS_VULKAN_SLOT_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/vulkan/context.h"
#include "backends/vulkan/memory.h"
#include "compiler/api/gpu_code.h"

namespace hpvm::vulkan {

class Slot {
 public:
  // As many as it takes to time 64 stretches of a submission and 64 launches that are being tuned.
  static constexpr uint32_t kTimestamps = 256;

  static StatusOr<std::unique_ptr<Slot>> Create(Context& context, Memory& memory, Lane lane);
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // Only when the device is done with everything recorded.
  Status Reset();
  // Fresh, not begun.
  StatusOr<VkCommandBuffer> NextCommands();
  StatusOr<VkDescriptorSet> NextSet(VkDescriptorSetLayout layout);
  // Null where the queue has none.
  VkQueryPool timestamps() const { return timestamps_.get(); }

  // Room for `count` trap records; they are not zero yet if must_zero_traps.
  Status GrowTraps(uint32_t count);
  VkBuffer traps() const { return traps_.buffer(); }
  VkBuffer read_traps() const { return read_traps_.buffer(); }
  std::span<const GpuTrapRecord> trap_records(uint32_t count) const {
    return {reinterpret_cast<const GpuTrapRecord*>(read_traps_.mapped()), count};
  }
  uint64_t trap_bytes() const { return trap_capacity_ * sizeof(GpuTrapRecord); }
  bool must_zero_traps = true;

 private:
  Slot(Context& context, Memory& memory) : context_(context), memory_(memory) {}
  Status AddDescriptorPool();

  Context& context_;
  Memory& memory_;
  Owned<VkCommandPool> pool_;
  std::vector<VkCommandBuffer> commands_;
  size_t commands_used_ = 0;
  std::vector<Owned<VkDescriptorPool>> descriptor_pools_;
  size_t descriptor_pool_ = 0;  // The one that sets come from.
  Owned<VkQueryPool> timestamps_;
  Storage traps_, read_traps_;  // The device's, and where they are copied for the host.
  uint64_t trap_capacity_ = 0;
};

// Slots of a lane that are not in use. Any thread.
class Slots {
 public:
  Slots(Context& context, Memory& memory, Lane lane) : context_(context), memory_(memory), lane_(lane) {}
  StatusOr<std::unique_ptr<Slot>> Take();
  void Give(std::unique_ptr<Slot> slot);

 private:
  Context& context_;
  Memory& memory_;
  const Lane lane_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> free_;  // Guarded by mutex_.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_SLOT_H_
