// SPDX-License-Identifier: Apache-2.0
// Evicts values from a full space (part of PlanResidency).
#include <algorithm>
#include <string>

#include "scheduler/residency/residency_walk.h"

namespace hpvm::scheduler {

using graph::FlatValueId;

StatusOr<bool> ResidencyWalk::MakeRoom(SpaceIndex space, uint64_t bytes) {
  const CopyTable::Window best = copies_.BestWindow(space, bytes);
  if (best.end == 0) {
    return false;
  }
  for (const uint32_t copy : best.copies) {
    HPVMD_RETURN_IF_ERROR(Evict(copy));
  }
  return true;
}

// Moves bytes that exist only here to the space's overflow space, and frees the memory.
Status ResidencyWalk::Evict(uint32_t index) {
  Copy& copy = copies_[index];
  const FlatValueId value = copy.value;
  ++out_.evictions;
  RangeSet only = copies_.OnlyIn(index);
  if (!only.is_empty()) {
    const SpaceIndex overflow = copies_.OverflowOf(copy.space);
    if (overflow == SpaceFacts::kNone) {
      return DoesNotFit(copy.space, out_.storages[copy.storage.index].bytes);
    }
    out_.spills += copy.space == kHostSpace;
    uint32_t target = kNone;
    for (uint32_t c = copies_.First(value); c != kNone; c = copies_[c].next) {
      target = copies_[c].space == overflow && copies_[c].is_writable && !copies_[c].is_window ? c : target;
    }
    copy.is_pinned = true;  // Making room in the overflow space must not select this copy again.
    if (target == kNone) {
      // It can leave as soon as its last user is done, and should not wait for memory until later.
      HPVMD_ASSIGN_OR_RETURN(target, NewCopy(value, overflow, std::min(start_, copy.until)));
    }
    TakeFrom(index, target, only, mover_[overflow]);
    copy.is_pinned = false;
    copies_.UpdateNextUse(target);
  }
  copies_.Drop(value, index);
  return absl::OkStatus();
}

Status ResidencyWalk::EvictAll(SpaceIndex space) {
  for (uint32_t copy = copies_.Lowest(space); copy != kNone; copy = copies_.Lowest(space)) {
    HPVMD_RETURN_IF_ERROR(Evict(copy));
  }
  copies_.arena(space).ReleaseHeld();
  return absl::OkStatus();
}

Status ResidencyWalk::DoesNotFit(SpaceIndex space, uint64_t bytes) const {
  const uint64_t pinned = copies_.PinnedBytes(space);
  const std::string where =
      space == kHostSpace ? "host memory" : "the memory of device " + input_.devices[mover_[space]].id;
  const bool fits_alone = bytes + pinned <= copies_.arena(space).storage_bytes_max();
  return ResourceExhausted("A buffer (" + std::to_string(bytes) + " bytes) does not fit into " + where + " (" +
                           std::to_string(copies_.arena(space).bytes_max()) +
                           " bytes) beside the values that are needed with it (" + std::to_string(pinned) + " bytes)" +
                           (fits_alone ? ", and there is no memory to move other values to." : "."));
}

}  // namespace hpvm::scheduler
