// SPDX-License-Identifier: Apache-2.0
// Copies from a device to the host's pageable memory by way of a ring's slots (staging_ring.h): the device writes slots
// ahead, and those that it is done with are emptied, several at a time.
#ifndef HPVMD_BACKENDS_GPU_ARRIVALS_H_
#define HPVMD_BACKENDS_GPU_ARRIVALS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "backends/gpu/staging_ring.h"

namespace hpvm::gpu {

// Those of one submission, in the order of their transfers. One thread at a time.
class Arrivals {
 public:
  // The ring is borrowed for its life. `may_write` is asked before bytes reach the host's memory, which none do when it
  // fails.
  Arrivals(StagingRing& ring, std::function<Status()> may_write) : ring_(ring), may_write_(std::move(may_write)) {}
  // Bytes that have not arrived never do. Slots that the device still writes become free when it is done.
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // Submits the copy, piece by piece. Its last bytes arrive in Finish. Copies to the same bytes may arrive in any
  // order: see Touches.
  Status Download(uint8_t* target, uint64_t bytes, const StagingRing::TakeSlot& take,
                  const StagingRing::Submit& submit);
  // True if some of these bytes are still to arrive.
  bool Touches(const uint8_t* data, uint64_t bytes) const;
  // A slot of the ring, for which the first ones arrive if there is no other way.
  StatusOr<StagingSlot*> Take();
  // Waits until everything has arrived. Everything must have been handed to the device.
  Status Finish();

 private:
  struct Piece {
    StagingSlot* slot = nullptr;  // Held.
    uint8_t* target = nullptr;
    uint64_t bytes = 0;
    uint64_t copy_bytes = 0;  // The whole copy's, in its first piece; else 0.
  };
  Status BeginCopies();
  Status FreeOne();

  StagingRing& ring_;
  const std::function<Status()> may_write_;
  std::deque<Piece> pieces_;
  size_t begun_ = 0;                // So many of the first ones are being copied out.
  std::unique_ptr<CopyFlow> flow_;  // The copy's whose pieces arrive,
  uint64_t flow_left_ = 0;          // of which so many bytes have not.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_ARRIVALS_H_
