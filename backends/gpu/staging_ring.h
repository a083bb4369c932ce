// SPDX-License-Identifier: Apache-2.0
// Pinned memory through which copies between the host's pageable memory and a device pass: a ring of slots, of which
// the host fills or empties some while the device has others.
//
// A slot is free; or held, by whoever took it: he fills it and hands it to the driver, or has the driver write it and
// empties it; or sent: nobody holds it any more, but the driver's transfer may not be over. Sent slots become free by
// themselves, whichever copy they belonged to, so that none stays idle between one copy and the next. The ring begins
// empty, and grows by a slot whenever all are in use, up to its limit: a device that copies little has little pinned.
//
// Failures. A transfer that fails is told by the submission that it belongs to; others take its slot as any. On a lost
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
  size_t index = 0;         // The driver knows it by this.
  uint8_t* data = nullptr;  // Pinned; the driver's.
  uint64_t used = 0;        // Bytes, for holders that share it out; 0 when it is taken.
  HostCopier::Task task;    // The holder's.
};

// The part that differs between drivers. A slot's calls come from one thread at a time.
class SlotDriver {
 public:
  virtual ~SlotDriver() = default;
  // Pinned memory for one more slot, which stays the driver's. Indices count from 0.
  virtual StatusOr<uint8_t*> Grow(size_t index, uint64_t bytes) = 0;
  // True when the device is done with everything that was handed to the driver with this slot. Does not wait.
  virtual bool IsOver(const StagingSlot& slot) = 0;
  // Waits for that; fails with what the transfer failed with, or with kUnavailable when the device is lost.
  virtual Status Await(const StagingSlot& slot) = 0;
};

// Any thread.
class StagingRing {
 public:
  // Copies of at most so many bytes share slots: one slot each would hold up the driver's queue.
  static constexpr uint64_t kSharedBytesMax = limits::kMiB;

  // Both are borrowed for its life.
  StagingRing(SlotDriver& driver, HostCopier& copier, const StagingShape& shape);
  // Waits for the device. Nobody may hold a slot.
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  SlotDriver& driver() const { return driver_; }
  HostCopier& copier() const { return copier_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  // The bytes of all slots, when it has grown.
  uint64_t bytes_max() const { return bytes_max_; }

  // A slot for the caller to hold; null when all are in use.
  StatusOr<StagingSlot*> TryTake();
  // Waits until there is one: only for those who hold none, or not the last one.
  StatusOr<StagingSlot*> Take();
  // Ends the hold; what the driver still does with the slot goes on.
  void Release(StagingSlot& slot);

  // Gives a copy a slot when it has none: Take, or a way that makes others free first.
  using TakeSlot = std::function<StatusOr<StagingSlot*>()>;
  // Hands the transfer between the slot and the copy's bytes [at, at + bytes) to the driver, which may begin it at
  // once.
  using Submit = std::function<Status(const StagingSlot& slot, uint64_t at, uint64_t bytes)>;
  struct Source {
    const uint8_t* data = nullptr;  // Borrowed for the call.
    uint64_t bytes = 0;
    WordScan* words = nullptr;  // If not null, receives what the slots hold, once.
  };
  // Fills slots, several at a time, and submits each in its turn. The last ones may still be on their way when it
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
  size_t slots_max_;               // Guarded by mutex_; falls when no more memory can be pinned.
  std::deque<StagingSlot> slots_;  // Guarded by mutex_; the slots themselves are their holders'.
  std::deque<StagingSlot*> free_;  // Guarded by mutex_; the warmest last.
  std::deque<StagingSlot*> sent_;  // Guarded by mutex_; in the order in which they were released.
};

// A slot that small pieces of one thread share, one behind the other. The driver is told of a slot's last transfer
// only, so they must be over in order.
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
  // At most StagingRing::kSharedBytesMax, the caller's until its transfer is over.
  StatusOr<Part> Take(uint64_t bytes, const StagingRing::TakeSlot& take);
  // The same, filled.
  StatusOr<Part> Fill(const StagingRing::Source& source, const StagingRing::TakeSlot& take);

 private:
  StagingRing& ring_;
  StagingSlot* slot_ = nullptr;  // Held.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_STAGING_RING_H_
