// SPDX-License-Identifier: Apache-2.0
// The ring (gpu/staging_ring.h) of host memory from and to which a lane's queue copies.
#ifndef HPVMD_BACKENDS_VULKAN_STAGING_H_
#define HPVMD_BACKENDS_VULKAN_STAGING_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "backends/gpu/staging_ring.h"
#include "backends/vulkan/memory.h"

namespace hpvm::vulkan {

class Staging final : private gpu::SlotDriver {
 public:
  // All are borrowed for its life.
  Staging(Context& context, Memory& memory, Lane lane, gpu::HostCopier& copier, const gpu::StagingShape& shape)
      : context_(context), memory_(memory), lane_(lane), ring_(*this, copier, shape) {}

  gpu::StagingRing& ring() { return ring_; }
  // Returns the device's buffer for the slot's memory, which begins at its first byte.
  VkBuffer BufferOf(const gpu::StagingSlot& slot) const { return slots_[slot.index].memory.buffer(); }
  // The device is done with the slot when the queue has reached the value. Call before the slot is released.
  void Sent(const gpu::StagingSlot& slot, uint64_t value) {
    slots_[slot.index].value.store(value, std::memory_order_relaxed);
  }

 private:
  struct Slot {
    Storage memory;
    std::atomic<uint64_t> value{0};
  };
  StatusOr<uint8_t*> Grow(size_t index, uint64_t bytes) override;
  bool IsOver(const gpu::StagingSlot& slot) override { return context_.IsReached(EndOf(slot)); }
  Status Await(const gpu::StagingSlot& slot) override { return context_.Wait(EndOf(slot)); }
  LanePoint EndOf(const gpu::StagingSlot& slot) const {
    return {lane_, slots_[slot.index].value.load(std::memory_order_relaxed)};
  }

  Context& context_;
  Memory& memory_;
  const Lane lane_;
  std::array<Slot, gpu::StagingShape::kSlotsMax> slots_;
  gpu::StagingRing ring_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_STAGING_H_
