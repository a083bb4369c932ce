// SPDX-License-Identifier: Apache-2.0
// Method: CopyTable chooses what leaves a full space. Uses are known in order, so the search begins at the copies
// needed last; a window grows from each, to the neighbour needed later, until the request fits. The window with the
// least traffic per group until its next use wins; one that need not be waited for precedes all others.
// Invariants: each temporary copy with bytes in a space with a budget is in by_offset and, under its present
// next_use, in by_next_use. No window contains a pinned copy, or the only copy of some bytes unless the space has
// an overflow.
// At most 16 more copies are examined after the first window that fits (256 while the best would have to be waited
// for), and a window grows inside one piece of the arena.
// Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer" (1966), for the order of
// victims.
#include "scheduler/residency/copy_table.h"

#include <algorithm>
#include <utility>

namespace hpvm::scheduler {
namespace {

using graph::FlatValueId;

// Number of uses elsewhere that are scanned to find the next one in a space.
constexpr uint32_t kUsesAhead = 4096;
// Number of copies needed last that are compared.
constexpr size_t kVictims = 16;
// Number compared when all of them would have to be waited for.
constexpr size_t kRecentVictims = 256;

}  // namespace

CopyTable::CopyTable(const ResidencyInput& input, const std::vector<uint64_t>& reserved, SpaceIndex spaces,
                     const std::vector<Storage>& storages, const Uses& uses)
    : uses_(uses), storages_(storages), first_copy_(input.flat.values.size(), kNone) {
  residents_.resize(spaces);
  for (SpaceIndex space = 0; space < spaces; ++space) {
    const SpaceFacts facts = space < input.spaces.size() ? input.spaces[space] : SpaceFacts();
    const uint64_t taken = space < reserved.size() ? reserved[space] : 0;
    arenas_.emplace_back(facts.bytes_max - std::min(facts.bytes_max, taken), facts.piece_bytes_max);
    residents_[space].has_budget = facts.bytes_max != ~uint64_t{0};
    residents_[space].overflow = facts.overflow < spaces ? facts.overflow : SpaceFacts::kNone;
    has_budgets_ = has_budgets_ || residents_[space].has_budget;
  }
}

void CopyTable::BeginUses() {
  if (has_budgets_) {
    next_value_use_.assign(uses_.first_value_use.begin(), uses_.first_value_use.end() - 1);
  }
}

void CopyTable::PassOn(FlatValueId from, FlatValueId to) {
  first_copy_[to.index] = std::exchange(first_copy_[from.index], kNone);
  for (uint32_t c = First(to); c != kNone; c = copies_[c].next) {
    copies_[c].value = to;
    UpdateNextUse(c);
  }
}

uint32_t CopyTable::Add(FlatValueId value, Copy copy) {
  uint32_t index = static_cast<uint32_t>(copies_.size());
  if (!free_copies_.empty()) {
    index = free_copies_.back();
    free_copies_.pop_back();
  } else {
    copies_.emplace_back();
  }
  copy.value = value;
  copy.is_pinned = false;
  copy.next = first_copy_[value.index];
  first_copy_[value.index] = index;
  copies_[index] = std::move(copy);
  NoteResident(index);
  return index;
}

void CopyTable::Drop(FlatValueId value, uint32_t index) {
  uint32_t* link = &first_copy_[value.index];
  while (*link != index) {
    link = &copies_[*link].next;
  }
  Copy& copy = copies_[index];
  *link = copy.next;
  ForgetResident(index);
  if (copy.is_temporary && storages_[copy.storage.index].bytes > 0) {
    const Storage& storage = storages_[copy.storage.index];
    arenas_[copy.space].Free(storage.offset, storage.bytes, copy.until);
  }
  copy = Copy();
  free_copies_.push_back(index);
}

void CopyTable::DropValue(FlatValueId value) {
  while (first_copy_[value.index] != kNone) {
    Drop(value, first_copy_[value.index]);
  }
}

void CopyTable::NoteResident(uint32_t index) {
  Copy& copy = copies_[index];
  if (!copy.is_temporary || !residents_[copy.space].has_budget || storages_[copy.storage.index].bytes == 0) {
    return;
  }
  Residents& residents = residents_[copy.space];
  copy.next_use = NextUse(copy.value, copy.space);
  residents.by_offset[storages_[copy.storage.index].offset] = index;
  residents.by_next_use.insert({copy.next_use, index});
}

void CopyTable::ForgetResident(uint32_t index) {
  const Copy& copy = copies_[index];
  if (!copy.is_temporary || !residents_[copy.space].has_budget || storages_[copy.storage.index].bytes == 0) {
    return;
  }
  residents_[copy.space].by_offset.erase(storages_[copy.storage.index].offset);
  residents_[copy.space].by_next_use.erase({copy.next_use, index});
}

void CopyTable::UpdateNextUse(uint32_t index) {
  Copy& copy = copies_[index];
  if (!copy.is_temporary || !residents_[copy.space].has_budget || storages_[copy.storage.index].bytes == 0) {
    return;
  }
  const uint32_t next_use = NextUse(copy.value, copy.space);
  if (next_use != copy.next_use) {
    residents_[copy.space].by_next_use.erase({copy.next_use, index});
    copy.next_use = next_use;
    residents_[copy.space].by_next_use.insert({next_use, index});
  }
}

// Returns the next group after the current one that needs the value there. In host memory every use counts, because it
// is the source of other spaces' copies.
uint32_t CopyTable::NextUse(FlatValueId value, SpaceIndex space) {
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

void CopyTable::Pin(uint32_t copy) {
  copies_[copy].last_use = group_;
  if (!copies_[copy].is_pinned) {
    copies_[copy].is_pinned = true;
    pins_.push_back(copy);
  }
}

void CopyTable::Unpin(uint32_t copy) {
  copies_[copy].is_pinned = false;
  UpdateNextUse(copy);
  pins_.erase(std::find(pins_.begin(), pins_.end(), copy));
}

void CopyTable::UnpinAll() {
  for (const uint32_t copy : pins_) {
    copies_[copy].is_pinned = false;
    UpdateNextUse(copy);
  }
  pins_.clear();
}

// Returns the bytes that are in no other copy.
RangeSet CopyTable::OnlyIn(uint32_t index) const {
  const Copy& copy = copies_[index];
  RangeSet only = copy.valid;
  for (uint32_t c = first_copy_[copy.value.index]; c != kNone && !only.is_empty(); c = copies_[c].next) {
    if (c != index) {
      only.Remove(copies_[c].valid);
    }
  }
  return only;
}

bool CopyTable::MayEvict(uint32_t index) {
  const Copy& copy = copies_[index];
  return !copy.is_pinned && (residents_[copy.space].overflow != SpaceFacts::kNone || OnlyIn(index).is_empty());
}

// A transfer in that overlaps with the previous task must not wait for that task, nor, when values are written back
// first, for the one before it.
bool CopyTable::IsRecent(uint32_t index, bool is_written_back) const {
  const Copy& copy = copies_[index];
  const std::array<uint32_t, 3>& groups = residents_[copy.space].groups;
  return copy.last_use != kNone &&
         (copy.last_use == groups[0] || copy.last_use == groups[1] || (is_written_back && copy.last_use == groups[2]));
}

// Returns the copies around `index` that must leave for `bytes` to fit; an empty window when there is no room there.
CopyTable::Window CopyTable::WindowAt(SpaceIndex space, uint32_t index, uint64_t bytes) {
  const auto& by_offset = residents_[space].by_offset;
  const auto offset_of = [&](uint32_t copy) { return storages_[copies_[copy].storage.index].offset; };
  const auto end_of = [&](uint32_t copy) { return offset_of(copy) + storages_[copies_[copy].storage.index].bytes; };
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
    // Take the neighbour that is needed later.
    if (has_left && (!has_right || copies_[std::prev(left)->second].next_use >= copies_[right->second].next_use)) {
      take((--left)->second);
    } else {
      take((right++)->second);
    }
  }
}

bool CopyTable::IsIn(FlatValueId value, StorageId storage) const {
  for (uint32_t c = first_copy_[value.index]; c != kNone; c = copies_[c].next) {
    if (copies_[c].storage == storage) {
      return true;
    }
  }
  return false;
}

bool CopyTable::IsInUse(StorageId storage) const {
  return std::any_of(copies_.begin(), copies_.end(), [&](const Copy& copy) { return copy.storage == storage; });
}

CopyTable::Window CopyTable::BestWindow(SpaceIndex space, uint64_t bytes) {
  const Residents& residents = residents_[space];
  Window best;
  if (!residents.has_budget || bytes > arenas_[space].storage_bytes_max()) {
    return best;
  }
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
    // Traffic per group until the next use.
    const double distance = window.next_use - std::min(group_, window.next_use) + 1.0;
    const double cost = static_cast<double>(window.traffic) / distance;
    if (best.end == 0 || std::pair(window.is_recent, cost) < std::pair(best.is_recent, best_cost)) {
      best_cost = cost;
      best = std::move(window);
    }
  }
  return best;
}

uint64_t CopyTable::PinnedBytes(SpaceIndex space) const {
  uint64_t pinned = 0;
  for (const uint32_t copy : pins_) {
    pinned += copies_[copy].space == space ? storages_[copies_[copy].storage.index].bytes : 0;
  }
  return pinned;
}

void CopyTable::NoteWork(SpaceIndex space) {
  if (auto& groups = residents_[space].groups; groups[0] != group_) {
    groups = {group_, groups[0], groups[1]};
  }
}

}  // namespace hpvm::scheduler
