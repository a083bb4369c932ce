// SPDX-License-Identifier: Apache-2.0
// Pinned memory, and the ring (gpu/staging_ring.h) of it for copies between the host's pageable memory and a device.
#ifndef HPVMD_BACKENDS_OPENCL_STAGING_H_
#define HPVMD_BACKENDS_OPENCL_STAGING_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "backends/gpu/staging_ring.h"
#include "backends/opencl/cl.h"
#include "backends/opencl/health.h"

namespace hpvm::opencl {

// Pinned is host memory that the driver allocated for transfers, mapped for its whole life.
class Pinned {
 public:
  Pinned() = default;
  // `queue` is borrowed for the object's life.
  static StatusOr<Pinned> Allocate(cl_context context, cl_command_queue queue, uint64_t bytes);
  Pinned(Pinned&& other) noexcept;
  Pinned& operator=(Pinned&& other) noexcept;
  ~Pinned();

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  cl_command_queue queue_ = nullptr;
  Memory memory_;
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Staging is the ring of one queue. Used by one thread.
class Staging final : private gpu::SlotDriver {
 public:
  // All are borrowed for its life. `queue` makes the transfers; `setup` maps memory.
  struct Parts {
    cl_context context;
    cl_command_queue queue, setup;
    Health& health;
    gpu::HostCopier& copier;
    std::string_view doing;  // Name of its transfers in messages.
  };
  Staging(const Parts& parts, const gpu::StagingShape& shape)
      : parts_(parts), ring_(*this, parts.copier, shape), shared_(ring_) {}

  gpu::StagingRing& ring() { return ring_; }
  // For small pieces.
  gpu::SharedSlot& shared() { return shared_; }
  // Records the last transfer from or to the slot.
  void Sent(const gpu::StagingSlot& slot, Event transfer) { slots_[slot.index].transfer = std::move(transfer); }
  Status Await(const gpu::StagingSlot& slot) override;

 private:
  struct Slot {
    Pinned memory;
    Event transfer;
  };
  StatusOr<uint8_t*> Grow(size_t index, uint64_t bytes) override;
  bool IsOver(const gpu::StagingSlot& slot) override;

  const Parts parts_;
  std::array<Slot, gpu::StagingShape::kSlotsMax> slots_;
  gpu::StagingRing ring_;
  gpu::SharedSlot shared_;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_STAGING_H_
