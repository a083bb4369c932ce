// SPDX-License-Identifier: Apache-2.0
// Method: best fit. Holes are kept by offset, to join neighbours, and by size, to find the smallest that suffices;
// the end of the arena grows when none does. Freed memory waits in a heap, by the end of its last user.
// Invariants: holes, held ranges and allocations are disjoint and lie below high_, which never falls. Both indices
// have the same holes. No hole crosses the end of a piece, and two holes touch only there. Sizes are multiples of
// kAlignment, and offsets stay at or below 2^63.
// Every operation is logarithmic in the holes, plus the held ranges that it releases, each of which is released
// once.
#include "scheduler/residency/arena.h"

#include <algorithm>

namespace hpvm::scheduler {

uint64_t Arena::Round(uint64_t bytes) {
  return bytes > ~uint64_t{0} - kAlignment ? ~uint64_t{0} / kAlignment * kAlignment
                                           : (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Arena::Arena(uint64_t bytes_max, uint64_t piece_bytes_max)
    : bytes_max_(bytes_max / kAlignment * kAlignment), piece_bytes_(piece_bytes_max / kAlignment * kAlignment) {
  // Offsets stay below 2^63, so that sums of two never wrap.
  bytes_max_ = std::min<uint64_t>(bytes_max_, uint64_t{1} << 63);
  piece_bytes_ = std::max<uint64_t>(std::min<uint64_t>(piece_bytes_, uint64_t{1} << 63), kAlignment);
}

void Arena::EraseHole(std::map<uint64_t, uint64_t>::iterator hole) {
  by_size_.erase({hole->second, hole->first});
  holes_.erase(hole);
}

void Arena::AddHole(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  auto after = holes_.lower_bound(offset);
  if (after != holes_.end() && after->first == offset + bytes && after->first % piece_bytes_ != 0) {
    bytes += after->second;
    by_size_.erase({after->second, after->first});
    after = holes_.erase(after);
  }
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset && offset % piece_bytes_ != 0) {
      by_size_.erase({before->second, before->first});
      before->second += bytes;
      by_size_.insert({before->second, before->first});
      return;
    }
  }
  holes_.emplace_hint(after, offset, bytes);
  by_size_.insert({bytes, offset});
}

std::optional<uint64_t> Arena::FromHoles(uint64_t bytes) {
  const auto it = by_size_.lower_bound({bytes, 0});
  if (it == by_size_.end()) {
    return std::nullopt;
  }
  const auto [size, offset] = *it;
  EraseHole(holes_.find(offset));
  AddHole(offset + bytes, size - bytes);
  return offset;
}

std::optional<uint64_t> Arena::Grow(uint64_t bytes) {
  uint64_t offset = high_;
  // A hole at the end becomes the beginning of the new range.
  const auto tail = holes_.empty() ? holes_.end() : std::prev(holes_.end());
  const bool has_tail = tail != holes_.end() && tail->first + tail->second == high_ && high_ % piece_bytes_ != 0;
  if (has_tail) {
    offset = tail->first;
  }
  if (bytes > PieceEnd(offset) - offset) {
    offset = PieceEnd(offset);
  }
  if (offset > bytes_max_ || bytes > bytes_max_ - offset) {
    return std::nullopt;
  }
  if (has_tail && offset == tail->first) {
    EraseHole(tail);
  } else if (offset > high_) {
    AddHole(high_, offset - high_);  // The rest of a piece.
  }
  high_ = offset + bytes;
  return offset;
}

std::optional<uint64_t> Arena::Allocate(uint64_t bytes, Duration start) {
  bytes = Round(bytes);
  if (bytes > storage_bytes_max()) {
    return std::nullopt;
  }
  while (!held_.empty() && held_.top().until <= start) {
    AddHole(held_.top().offset, held_.top().bytes);
    held_.pop();
  }
  std::optional<uint64_t> offset = FromHoles(bytes);
  if (!offset) {
    offset = Grow(bytes);
  }
  while (!offset && !held_.empty()) {
    AddHole(held_.top().offset, held_.top().bytes);
    held_.pop();
    offset = FromHoles(bytes);
  }
  return offset ? offset : Grow(bytes);
}

void Arena::ReleaseHeld() {
  for (; !held_.empty(); held_.pop()) {
    AddHole(held_.top().offset, held_.top().bytes);
  }
}

void Arena::Free(uint64_t offset, uint64_t bytes, Duration until) { held_.push({until, offset, Round(bytes)}); }

}  // namespace hpvm::scheduler
