// SPDX-License-Identifier: Apache-2.0
// Slot holds the Vulkan objects that a submission needs while it is recorded and runs, for reuse by later ones: command
// buffers, descriptor sets, timestamps, trap records.
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

class CommandSlot {
 public:
  // Enough to time 64 stretches of a submission and 64 launches that are being tuned.
  static constexpr uint32_t kTimestamps = 256;

  static StatusOr<std::unique_ptr<CommandSlot>> Create(Context& context, Memory& memory, Lane lane);
  CommandSlot(const CommandSlot&) = delete;
  CommandSlot& operator=(const CommandSlot&) = delete;

  // Call only when the device is done with everything recorded.
  Status Reset();
  // Returns a new command buffer that is not begun.
  StatusOr<VkCommandBuffer> NextCommands();
  StatusOr<VkDescriptorSet> NextSet(VkDescriptorSetLayout layout);
  // Null when the queue has no timestamps.
  VkQueryPool timestamps() const { return timestamps_.get(); }

  // Makes room for `count` trap records; they are not zero yet if must_zero_traps.
  Status GrowTraps(uint32_t count);
  VkBuffer traps() const { return traps_.buffer(); }
  VkBuffer read_traps() const { return read_traps_.buffer(); }
  std::span<const GpuTrapRecord> trap_records(uint32_t count) const {
    return {reinterpret_cast<const GpuTrapRecord*>(read_traps_.mapped()), count};
  }
  uint64_t trap_bytes() const { return trap_capacity_ * sizeof(GpuTrapRecord); }
  bool must_zero_traps = true;

 private:
  CommandSlot(Context& context, Memory& memory) : context_(context), memory_(memory) {}
  Status AddDescriptorPool();

  Context& context_;
  Memory& memory_;
  Owned<VkCommandPool> pool_;
  std::vector<VkCommandBuffer> commands_;
  size_t commands_used_ = 0;
  std::vector<Owned<VkDescriptorPool>> descriptor_pools_;
  size_t descriptor_pool_ = 0;  // The pool from which sets are allocated.
  Owned<VkQueryPool> timestamps_;
  Storage traps_, read_traps_;  // The device's records, and the copy for the host.
  uint64_t trap_capacity_ = 0;
};

// Unused slots of a lane. Thread-safe.
class CommandSlots {
 public:
  CommandSlots(Context& context, Memory& memory, Lane lane) : context_(context), memory_(memory), lane_(lane) {}
  StatusOr<std::unique_ptr<CommandSlot>> Take();
  void Give(std::unique_ptr<CommandSlot> slot);

 private:
  Context& context_;
  Memory& memory_;
  const Lane lane_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<CommandSlot>> free_;  // Guarded by mutex_.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_SLOT_H_
