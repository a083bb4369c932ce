// SPDX-License-Identifier: Apache-2.0
// StagingRing manages pinned memory for copies between the host's pageable memory and a device: a ring of slots, some
// of which the host fills or empties while the device uses others.
//
// A slot is free; or held by its taker, which either fills it and submits it to the driver, or lets the driver write it
// and empties it; or sent: no longer held, but the driver's transfer may still be in progress. Sent slots become free
// by themselves, whichever copy they belonged to, so that none is idle between copies. The ring begins empty, and grows
// by a slot whenever all are in use, up to its limit: a device that copies little pins little.
//
// Failures: a failed transfer is reported by the submission that it belongs to; its slot is reused normally. On a lost
// device every wait ends.
#ifndef HPVMD_BACKENDS_GPU_STAGING_RING_H_
#define HPVMD_BACKENDS_GPU_STAGING_RING_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "backends/gpu/host_copy.h"
#include "backends/gpu/known_words.h"
#include "backends/gpu/staging_shape.h"
#include "base/status.h"

namespace hpvm::gpu {

struct StagingSlot {
  size_t index = 0;         // Identifies the slot to the driver.
  uint8_t* data = nullptr;  // Pinned; owned by the driver.
  // Number of bytes used, for holders that share the slot; 0 when it is taken.
  uint64_t used = 0;
  HostCopier::Task task;  // Belongs to the holder.
};

// The driver-specific part. Calls for one slot come from one thread at a time.
class SlotDriver {
 public:
  virtual ~SlotDriver() = default;
  // Returns pinned memory for one more slot, which the driver owns. Indices count from 0.
  virtual StatusOr<uint8_t*> Grow(size_t index, uint64_t bytes) = 0;
  // Returns true when the device has finished everything submitted with this slot. Does not wait.
  virtual bool IsOver(const StagingSlot& slot) = 0;
  // Waits for that; fails with the transfer's failure, or with kUnavailable when the device is lost.
  virtual Status Await(const StagingSlot& slot) = 0;
};

// Thread-safe.
class StagingRing {
 public:
  // Copies up to this size share slots, because one slot each would block the driver's queue.
  static constexpr uint64_t kSharedBytesMax = limits::kMiB;

  // Both are borrowed for its life.
  StagingRing(SlotDriver& driver, HostCopier& copier, const StagingShape& shape);
  // Waits for the device. No slot may be held.
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  SlotDriver& driver() const { return driver_; }
  HostCopier& copier() const { return copier_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  // Size of all slots when the ring has fully grown.
  uint64_t bytes_max() const { return bytes_max_; }

  // Returns a slot held by the caller; null when all are in use.
  StatusOr<StagingSlot*> TryTake();
  // Waits for a slot; only for callers that hold none, or not the last one.
  StatusOr<StagingSlot*> Take();
  // Ends the hold; the driver's transfers with the slot continue.
  void Release(StagingSlot& slot);

  // Provides a slot for a copy that has none: Take, or a function that first frees others.
  using TakeSlot = std::function<StatusOr<StagingSlot*>()>;
  // Submits the transfer between the slot and the copy's bytes [at, at + bytes) to the driver, which may begin it at
  // once.
  using Submit = std::function<Status(const StagingSlot& slot, uint64_t at, uint64_t bytes)>;
  struct Source {
    const uint8_t* data = nullptr;  // Borrowed for the call.
    uint64_t bytes = 0;
    WordScan* words = nullptr;  // If not null, receives the contents of the slots, once.
  };
  // Fills slots, several at a time, and submits each in turn. The last transfers may still be in progress when it
  // returns.
  Status Upload(const Source& source, const TakeSlot& take, const Submit& submit);

 private:
  struct Filling {
    StagingSlot* slot = nullptr;
    uint64_t at = 0, bytes = 0;
  };
  Status BeginFills(const Source& source, const TakeSlot& take, uint64_t* begun, std::deque<Filling>* filling);
  StagingSlot* Hold(StagingSlot* slot);

  SlotDriver& driver_;
  HostCopier& copier_;
  const uint64_t slot_bytes_, bytes_max_;
  std::mutex mutex_;
  std::condition_variable released_;
  size_t slots_max_;               // Guarded by mutex_; decreases when no more memory can be pinned.
  std::deque<StagingSlot> slots_;  // Guarded by mutex_; the slots themselves belong to their holders.
  std::deque<StagingSlot*> free_;  // Guarded by mutex_; most recently used last.
  std::deque<StagingSlot*> sent_;  // Guarded by mutex_; in order of release.
};

// A slot shared by small pieces of one thread, one after the other. The driver is told only of a slot's last transfer,
// so the transfers must complete in order.
class SharedSlot {
 public:
  // Borrowed.
  explicit SharedSlot(StagingRing& ring) : ring_(ring) {}
  ~SharedSlot();
  SharedSlot(const SharedSlot&) = delete;
  SharedSlot& operator=(const SharedSlot&) = delete;

  struct Part {
    StagingSlot* slot = nullptr;
    uint8_t* data = nullptr;
  };
  // `bytes` is at most StagingRing::kSharedBytesMax; the part belongs to the caller until its transfer is over.
  StatusOr<Part> Take(uint64_t bytes, const StagingRing::TakeSlot& take);
  // The same, filled.
  StatusOr<Part> Fill(const StagingRing::Source& source, const StagingRing::TakeSlot& take);

 private:
  StagingRing& ring_;
  StagingSlot* slot_ = nullptr;  // Held.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_STAGING_RING_H_
