// SPDX-License-Identifier: Apache-2.0
// Arrivals performs copies from a device to the host's pageable memory through a ring's slots (staging_ring.h): the
// device writes slots ahead, and completed slots are emptied, several at a time.
#ifndef HPVMD_BACKENDS_GPU_ARRIVALS_H_
#define HPVMD_BACKENDS_GPU_ARRIVALS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "backends/gpu/staging_ring.h"

namespace hpvm::gpu {

// Handles the copies of one submission, in the order of their transfers. Used by one thread at a time.
class Arrivals {
 public:
  // The ring is borrowed for its life. `may_write` is called before bytes reach the host's memory; when it fails, none
  // do.
  Arrivals(StagingRing& ring, std::function<Status()> may_write) : ring_(ring), may_write_(std::move(may_write)) {}
  // Bytes that have not arrived are dropped. Slots that the device still writes become free when it is done.
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // Submits the copy, piece by piece. Its last bytes arrive in Finish. Copies to the same bytes may arrive in any
  // order: see Touches.
  Status Download(uint8_t* target, uint64_t bytes, const StagingRing::TakeSlot& take,
                  const StagingRing::Submit& submit);
  // Returns true if some of these bytes are still to arrive.
  bool Touches(const uint8_t* data, uint64_t bytes) const;
  // Returns a slot of the ring; completes the first arrivals if necessary to free one.
  StatusOr<StagingSlot*> Take();
  // Waits until everything has arrived. Everything must have been submitted to the device.
  Status Finish();

 private:
  struct Piece {
    StagingSlot* slot = nullptr;  // Held.
    uint8_t* target = nullptr;
    uint64_t bytes = 0;
    uint64_t copy_bytes = 0;  // The size of the whole copy in its first piece; otherwise 0.
  };
  Status BeginCopies();
  Status FreeOne();

  StagingRing& ring_;
  const std::function<Status()> may_write_;
  std::deque<Piece> pieces_;
  size_t begun_ = 0;                // Number of the first pieces that are being copied out.
  std::unique_ptr<CopyFlow> flow_;  // The flow of the copy whose pieces are arriving,
  uint64_t flow_left_ = 0;          // and its remaining bytes.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_ARRIVALS_H_
