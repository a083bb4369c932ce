// SPDX-License-Identifier: Apache-2.0
// Pinned memory through which copies between the host's pageable memory and a device pass: while the device reads one
// slot, the host fills the next.
#ifndef HPVMD_BACKENDS_OPENCL_STAGING_H_
#define HPVMD_BACKENDS_OPENCL_STAGING_H_

#include <array>
#include <cstdint>

#include "backends/opencl/cl.h"
#include "base/limits.h"

namespace hpvm::opencl {

// Host memory that the driver allocated for transfers, mapped for its whole life.
class Pinned {
 public:
  Pinned() = default;
  // `queue` is borrowed for its life.
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

// Slots used in turn; small pieces share one. One thread.
class Staging {
 public:
  static constexpr uint64_t kSlotBytes = 4 * limits::kMiB;
  static constexpr size_t kSlots = 3;

  // Both are borrowed for its life. Memory is allocated with the first piece.
  Staging(cl_context context, cl_command_queue queue) : context_(context), queue_(queue) {}

  // Memory for the next piece of at most kSlotBytes, after the transfers that last used it have ended. Stays the
  // caller's until the slot's turn comes again.
  StatusOr<uint8_t*> Take(uint64_t bytes);
  // The transfer from or to what Take gave last.
  void Sent(Event transfer) { events_[slot_] = std::move(transfer); }

 private:
  cl_context context_;
  cl_command_queue queue_;
  Pinned memory_;
  size_t slot_ = 0;
  uint64_t used_ = 0;                 // Of the slot.
  std::array<Event, kSlots> events_;  // The last transfer of each; queues are in order.
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_STAGING_H_
