// SPDX-License-Identifier: Apache-2.0
// Of PlanResidency: what leaves a space that is full. The order of uses is known, so that what is needed last leaves
// first (L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966), and what need not be
// written back before what must be, if it is not needed much earlier.
#include <algorithm>
#include <string>
#include <utility>

#include "base/failpoint.h"
#include "scheduler/residency/residency_walk.h"

namespace hpvm::scheduler {
namespace {

using graph::FlatValueId;

// Uses elsewhere that are looked over to find the next one in a space.
constexpr uint32_t kUsesAhead = 4096;
// How many of the copies that are needed last are weighed against each other.
constexpr size_t kVictims = 16;
// So many when all of them would be waited for.
constexpr size_t kRecentVictims = 256;

}  // namespace

void ResidencyWalk::NoteResident(uint32_t index) {
  Copy& copy = copies_[index];
  if (!copy.is_temporary || !residents_[copy.space].has_budget || out_.storages[copy.storage.index].bytes == 0) {
    return;
  }
  Residents& residents = residents_[copy.space];
  copy.next_use = NextUse(copy.value, copy.space);
  residents.by_offset[out_.storages[copy.storage.index].offset] = index;
  residents.by_next_use.insert({copy.next_use, index});
}

void ResidencyWalk::ForgetResident(uint32_t index) {
  const Copy& copy = copies_[index];
  if (!copy.is_temporary || !residents_[copy.space].has_budget || out_.storages[copy.storage.index].bytes == 0) {
    return;
  }
  residents_[copy.space].by_offset.erase(out_.storages[copy.storage.index].offset);
  residents_[copy.space].by_next_use.erase({copy.next_use, index});
}

void ResidencyWalk::UpdateNextUse(uint32_t index) {
  Copy& copy = copies_[index];
  if (!copy.is_temporary || !residents_[copy.space].has_budget || out_.storages[copy.storage.index].bytes == 0) {
    return;
  }
  const uint32_t next_use = NextUse(copy.value, copy.space);
  if (next_use != copy.next_use) {
    residents_[copy.space].by_next_use.erase({copy.next_use, index});
    copy.next_use = next_use;
    residents_[copy.space].by_next_use.insert({next_use, index});
  }
}

// The group after the present one that needs the value there. Host memory is where other spaces' values come from, so
// that every use counts.
uint32_t ResidencyWalk::NextUse(FlatValueId value, SpaceIndex space) {
  const uint32_t end = uses_.first_value_use[value.index + 1];
  uint32_t& first = next_value_use_[value.index];
  while (first < end && uses_.value_uses[first].group <= group_) {
    ++first;
  }
  for (uint32_t use = first; use < end && use < first + kUsesAhead; ++use) {
    if (space == kHostSpace || uses_.value_uses[use].space == space) {
      return uses_.value_uses[use].group;
    }
  }
  return uses_.last_use[value.index] == kUseAtEnd && space == kHostSpace ? kUseAtEnd : kNoUse;
}

void ResidencyWalk::Pin(uint32_t copy) {
  copies_[copy].last_use = group_;
  if (!copies_[copy].is_pinned) {
    copies_[copy].is_pinned = true;
    pins_.push_back(copy);
  }
}

void ResidencyWalk::Unpin(uint32_t copy) {
  copies_[copy].is_pinned = false;
  UpdateNextUse(copy);
  pins_.erase(std::find(pins_.begin(), pins_.end(), copy));
}

void ResidencyWalk::UnpinAll() {
  for (const uint32_t copy : pins_) {
    copies_[copy].is_pinned = false;
    UpdateNextUse(copy);
  }
  pins_.clear();
}

// Bytes that are nowhere else.
RangeSet ResidencyWalk::OnlyIn(uint32_t index) const {
  const Copy& copy = copies_[index];
  RangeSet only = copy.valid;
  for (uint32_t c = first_copy_[copy.value.index]; c != kNone && !only.is_empty(); c = copies_[c].next) {
    if (c != index) {
      only.Remove(copies_[c].valid);
    }
  }
  return only;
}

bool ResidencyWalk::MayEvict(uint32_t index) {
  const Copy& copy = copies_[index];
  return !copy.is_pinned && (residents_[copy.space].overflow != SpaceFacts::kNone || OnlyIn(index).is_empty());
}

// What moves in while the task before still runs must not wait for it, nor, where values move out first, for the one
// before that.
bool ResidencyWalk::IsRecent(uint32_t index, bool is_written_back) const {
  const Copy& copy = copies_[index];
  const std::array<uint32_t, 3>& groups = residents_[copy.space].groups;
  return copy.last_use != kNone &&
         (copy.last_use == groups[0] || copy.last_use == groups[1] || (is_written_back && copy.last_use == groups[2]));
}

// The copies around one that must leave for `bytes` to fit; no bytes: there is no room there.
ResidencyWalk::Window ResidencyWalk::WindowAt(SpaceIndex space, uint32_t index, uint64_t bytes) {
  const auto& by_offset = residents_[space].by_offset;
  const auto offset_of = [&](uint32_t copy) { return out_.storages[copies_[copy].storage.index].offset; };
  const auto end_of = [&](uint32_t copy) { return offset_of(copy) + out_.storages[copies_[copy].storage.index].bytes; };
  const uint64_t piece_begin = arenas_[space].PieceBegin(offset_of(index));
  const uint64_t piece_end = arenas_[space].PieceEnd(offset_of(index));
  Window window;
  auto left = by_offset.find(offset_of(index));
  auto right = std::next(left);
  const auto take = [&](uint32_t copy) {
    window.copies.push_back(copy);
    window.next_use = std::min(window.next_use, copies_[copy].next_use);
    const uint64_t back = copies_[copy].next_use < kUseAtEnd ? copies_[copy].valid.bytes() : 0;
    const uint64_t only = OnlyIn(copy).bytes();
    window.traffic += only + back;
    window.is_recent = window.is_recent || IsRecent(copy, only > 0);
  };
  take(index);
  while (true) {
    window.begin = left == by_offset.begin() ? 0 : end_of(std::prev(left)->second);
    window.begin = std::max(window.begin, piece_begin);
    window.end = std::min(right == by_offset.end() ? arenas_[space].bytes_max() : right->first, piece_end);
    if (window.end - window.begin >= bytes) {
      return window;
    }
    const bool has_left = left != by_offset.begin() && window.begin > piece_begin && MayEvict(std::prev(left)->second);
    const bool has_right = right != by_offset.end() && right->first < piece_end && MayEvict(right->second);
    if (!has_left && !has_right) {
      return {};
    }
    // The neighbour that is needed later.
    if (has_left && (!has_right || copies_[std::prev(left)->second].next_use >= copies_[right->second].next_use)) {
      take((--left)->second);
    } else {
      take((right++)->second);
    }
  }
}

StatusOr<bool> ResidencyWalk::MakeRoom(SpaceIndex space, uint64_t bytes) {
  Residents& residents = residents_[space];
  if (!residents.has_budget || bytes > arenas_[space].storage_bytes_max()) {
    return false;
  }
  Window best;
  double best_cost = 0;
  size_t seen = 0;
  for (auto it = residents.by_next_use.rbegin(); it != residents.by_next_use.rend(); ++it) {
    if (best.end > 0 && ++seen > (best.is_recent ? kRecentVictims : kVictims)) {
      break;
    }
    if (!MayEvict(it->second)) {
      continue;
    }
    Window window = WindowAt(space, it->second, bytes);
    if (window.end == 0) {
      continue;
    }
    // Traffic for each group that goes by until it is needed again.
    const double distance = window.next_use - std::min(group_, window.next_use) + 1.0;
    const double cost = static_cast<double>(window.traffic) / distance;
    if (best.end == 0 || std::pair(window.is_recent, cost) < std::pair(best.is_recent, best_cost)) {
      best_cost = cost;
      best = std::move(window);
    }
  }
  if (best.end == 0) {
    return false;
  }
  for (const uint32_t copy : best.copies) {
    HPVMD_RETURN_IF_ERROR(Evict(copy));
  }
  return true;
}

// Moves what is nowhere else to where the space overflows to, and gives the memory back.
Status ResidencyWalk::Evict(uint32_t index) {
  Copy& copy = copies_[index];
  const FlatValueId value = copy.value;
  ++out_.evictions;
  RangeSet only = OnlyIn(index);
  if (!only.is_empty()) {
    const SpaceIndex overflow = residents_[copy.space].overflow;
    if (overflow == SpaceFacts::kNone) {
      return DoesNotFit(copy.space, out_.storages[copy.storage.index].bytes);
    }
    out_.spills += copy.space == kHostSpace;
    uint32_t target = kNone;
    for (uint32_t c = first_copy_[value.index]; c != kNone; c = copies_[c].next) {
      target = copies_[c].space == overflow && copies_[c].is_writable ? c : target;
    }
    copy.is_pinned = true;  // Making room there must not come back to it.
    if (target == kNone) {
      // It can leave as soon as its last user is done, and should not wait for memory until later.
      HPVMD_ASSIGN_OR_RETURN(target, NewCopy(value, overflow, std::min(start_, copy.until)));
    }
    if (HPVMD_MUTANT("plan_write_back_skipped")) {
      copies_[target].valid.Add(only);
    } else {
      TakeFrom(index, target, only, mover_[overflow]);
    }
    copy.is_pinned = false;
    UpdateNextUse(target);
  }
  DropCopy(value, index);
  return absl::OkStatus();
}

Status ResidencyWalk::EvictAll(SpaceIndex space) {
  while (!residents_[space].by_offset.empty()) {
    HPVMD_RETURN_IF_ERROR(Evict(residents_[space].by_offset.begin()->second));
  }
  arenas_[space].ReleaseHeld();
  return absl::OkStatus();
}

Status ResidencyWalk::DoesNotFit(SpaceIndex space, uint64_t bytes) const {
  uint64_t pinned = 0;
  for (const uint32_t copy : pins_) {
    pinned += copies_[copy].space == space ? out_.storages[copies_[copy].storage.index].bytes : 0;
  }
  const std::string where =
      space == kHostSpace ? "host memory" : "the memory of device " + input_.devices[mover_[space]].id;
  const bool fits_alone = bytes + pinned <= arenas_[space].storage_bytes_max();
  return ResourceExhausted("A buffer (" + std::to_string(bytes) + " bytes) does not fit into " + where + " (" +
                           std::to_string(arenas_[space].bytes_max()) + " bytes) beside what is needed with it (" +
                           std::to_string(pinned) + " bytes)" +
                           (fits_alone ? ", and other values have nowhere to go." : "."));
}

}  // namespace hpvm::scheduler
