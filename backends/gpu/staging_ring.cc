// SPDX-License-Identifier: Apache-2.0
// Method: TryTake prefers a free slot, then the slot sent first if the device is done with it, then growth. Upload
// keeps a queue of slots that are being filled; each round begins up to two fills and submits the oldest.
// Invariants: a slot is in free_, or in sent_, or held by one taker. The ring never shrinks; its limit falls when
// no more memory can be pinned, and two slots exist before that counts. Upload waits for a slot only while it fills
// none, so it never waits for itself.
// Each round submits one slot, so an upload ends after as many rounds as it has pieces. On a lost device Await
// fails, and the slot goes back for the next one that waits.
#include "backends/gpu/staging_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hpvm::gpu {
namespace {

// A copy that begins while the ring is small starts before the ring has grown, because pinning takes long.
constexpr int kFillsATurn = 2;
// With fewer slots, the holder of one might wait for itself.
constexpr size_t kSlotsMin = 2;
// Alignment of parts of shared slots.
constexpr uint64_t kPartAlignment = 64;

}  // namespace

StagingRing::StagingRing(SlotDriver& driver, HostCopier& copier, const StagingShape& shape)
    : driver_(driver),
      copier_(copier),
      slot_bytes_(shape.slot_bytes),
      bytes_max_(shape.slot_bytes * shape.slots),
      slots_max_(shape.slots) {
  HPVMD_CHECK(slot_bytes_ >= kSharedBytesMax && slots_max_ >= kSlotsMin && slots_max_ <= StagingShape::kSlotsMax);
}

StagingRing::~StagingRing() {
  HPVMD_CHECK(free_.size() + sent_.size() == slots_.size());
  for (const StagingSlot* slot : sent_) {
    // The copy that needs the result has asked for it.
    driver_.Await(*slot).IgnoreError();
  }
}

StagingSlot* StagingRing::Hold(StagingSlot* slot) {
  slot->used = 0;
  return slot;
}

StatusOr<StagingSlot*> StagingRing::TryTake() {
  std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    StagingSlot* const slot = free_.back();
    free_.pop_back();
    return Hold(slot);
  }
  if (!sent_.empty() && driver_.IsOver(*sent_.front())) {
    StagingSlot* const slot = sent_.front();
    sent_.pop_front();
    return Hold(slot);
  }
  if (slots_.size() == slots_max_) {
    return nullptr;
  }
  const StatusOr<uint8_t*> data = driver_.Grow(slots_.size(), slot_bytes_);
  if (!data.ok()) {
    if (slots_.size() < kSlotsMin) {
      return data.status();
    }
    slots_max_ = slots_.size();
    return nullptr;
  }
  StagingSlot& slot = slots_.emplace_back();
  slot.index = slots_.size() - 1;
  slot.data = *data;
  return &slot;
}

StatusOr<StagingSlot*> StagingRing::Take() {
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(StagingSlot * slot, TryTake());
    if (slot != nullptr) {
      return slot;
    }
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return !free_.empty() || !sent_.empty(); });
    if (!free_.empty()) {
      continue;
    }
    // The caller holds it already, so that no other thread submits it to the driver meanwhile.
    slot = sent_.front();
    sent_.pop_front();
    lock.unlock();
    const Status status = driver_.Await(*slot);
    if (!absl::IsUnavailable(status)) {
      return Hold(slot);
    }
    lock.lock();
    sent_.push_front(slot);
    released_.notify_all();
    return status;
  }
}

void StagingRing::Release(StagingSlot& slot) {
  {
    std::lock_guard lock(mutex_);
    (driver_.IsOver(slot) ? free_ : sent_).push_back(&slot);
  }
  released_.notify_all();
}

Status StagingRing::BeginFills(const Source& source, const TakeSlot& take, uint64_t* begun,
                               std::deque<Filling>* filling) {
  for (int i = 0; i < kFillsATurn && *begun < source.bytes; ++i) {
    HPVMD_ASSIGN_OR_RETURN(StagingSlot* const slot, filling->empty() ? take() : TryTake());
    if (slot == nullptr) {
      break;
    }
    const uint64_t bytes = std::min(slot_bytes_, source.bytes - *begun);
    // The device may read it from the processor's cache.
    copier_.Start(
        slot->task,
        {.target = slot->data, .source = source.data + *begun, .bytes = bytes, .has_indices = source.words != nullptr});
    filling->push_back({slot, *begun, bytes});
    *begun += bytes;
  }
  return absl::OkStatus();
}

Status StagingRing::Upload(const Source& source, const TakeSlot& take, const Submit& submit) {
  CopyFlow flow = copier_.Flow(/*is_up=*/true, source.bytes, bytes_max());
  std::deque<Filling> filling;
  uint64_t begun = 0;
  Status status;
  while (status.ok() && (begun < source.bytes || !filling.empty())) {
    status = BeginFills(source, take, &begun, &filling);
    if (!status.ok()) {
      break;
    }
    const Filling first = filling.front();
    filling.pop_front();
    copier_.Finish(first.slot->task);
    if (source.words != nullptr) {
      source.words->Add(first.slot->task.words(), first.bytes);
    }
    status = submit(*first.slot, first.at, first.bytes);
    Release(*first.slot);
    flow.Moved(status.ok() ? first.bytes : 0);
  }
  for (const Filling& unsent : filling) {
    copier_.Finish(unsent.slot->task);
    Release(*unsent.slot);
  }
  return status;
}

SharedSlot::~SharedSlot() {
  if (slot_ != nullptr) {
    ring_.Release(*slot_);
  }
}

StatusOr<SharedSlot::Part> SharedSlot::Take(uint64_t bytes, const StagingRing::TakeSlot& take) {
  HPVMD_CHECK(bytes <= StagingRing::kSharedBytesMax);
  if (slot_ != nullptr && bytes > ring_.slot_bytes() - slot_->used) {
    ring_.Release(*std::exchange(slot_, nullptr));
  }
  if (slot_ == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(slot_, take());
  }
  const Part part{slot_, slot_->data + slot_->used};
  const uint64_t end = (slot_->used + bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  slot_->used = std::min(ring_.slot_bytes(), end);
  return part;
}

StatusOr<SharedSlot::Part> SharedSlot::Fill(const StagingRing::Source& source, const StagingRing::TakeSlot& take) {
  HPVMD_ASSIGN_OR_RETURN(const Part part, Take(source.bytes, take));
  std::memcpy(part.data, source.data, source.bytes);
  if (source.words != nullptr) {
    source.words->Add(part.data, source.bytes);
  }
  return part;
}

}  // namespace hpvm::gpu
