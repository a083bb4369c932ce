// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency/range_set.h"

#include <algorithm>
#include <array>

namespace hpvm::scheduler {

size_t RangeSet::FirstEndingAfter(uint64_t at) const {
  return static_cast<size_t>(
      std::upper_bound(ranges_.begin(), ranges_.end(), at, [](uint64_t a, const ByteRange& r) { return a < r.end; }) -
      ranges_.begin());
}

uint64_t RangeSet::bytes() const {
  uint64_t sum = 0;
  for (const ByteRange& range : ranges_) {
    sum += range.bytes();
  }
  return sum;
}

bool RangeSet::Contains(ByteRange range) const {
  if (range.is_empty()) {
    return true;
  }
  const size_t i = FirstEndingAfter(range.begin);
  return i < ranges_.size() && ranges_[i].begin <= range.begin && ranges_[i].end >= range.end;
}

bool RangeSet::Contains(const RangeSet& other) const {
  return std::all_of(other.ranges_.begin(), other.ranges_.end(),
                     [&](const ByteRange& range) { return Contains(range); });
}

bool RangeSet::Overlaps(ByteRange range) const {
  const size_t i = FirstEndingAfter(range.begin);
  return !range.is_empty() && i < ranges_.size() && ranges_[i].begin < range.end;
}

void RangeSet::Add(ByteRange range) {
  if (range.is_empty()) {
    return;
  }
  // Ranges adjacent to the new one are merged with it.
  size_t first = FirstEndingAfter(range.begin);
  if (first > 0 && ranges_[first - 1].end == range.begin) {
    --first;
  }
  size_t last = first;
  while (last < ranges_.size() && ranges_[last].begin <= range.end) {
    range.begin = std::min(range.begin, ranges_[last].begin);
    range.end = std::max(range.end, ranges_[last].end);
    ++last;
  }
  if (last == first) {
    ranges_.insert(ranges_.begin() + static_cast<ptrdiff_t>(first), range);
    return;
  }
  ranges_[first] = range;
  ranges_.erase(ranges_.begin() + static_cast<ptrdiff_t>(first) + 1, ranges_.begin() + static_cast<ptrdiff_t>(last));
}

void RangeSet::Add(const RangeSet& other) {
  for (const ByteRange& range : other.ranges_) {
    Add(range);
  }
}

void RangeSet::Remove(ByteRange range) {
  if (range.is_empty()) {
    return;
  }
  const size_t first = FirstEndingAfter(range.begin);
  size_t last = first;
  std::array<ByteRange, 2> kept;
  size_t count = 0;
  while (last < ranges_.size() && ranges_[last].begin < range.end) {
    if (ranges_[last].begin < range.begin) {
      kept[count++] = {ranges_[last].begin, range.begin};
    }
    if (ranges_[last].end > range.end) {
      kept[count++] = {range.end, ranges_[last].end};
    }
    ++last;
  }
  const auto at =
      ranges_.erase(ranges_.begin() + static_cast<ptrdiff_t>(first), ranges_.begin() + static_cast<ptrdiff_t>(last));
  ranges_.insert(at, kept.begin(), kept.begin() + static_cast<ptrdiff_t>(count));
}

void RangeSet::Remove(const RangeSet& other) {
  if (this == &other) {
    ranges_.clear();
    return;
  }
  for (const ByteRange& range : other.ranges_) {
    Remove(range);
  }
}

RangeSet RangeSet::Within(ByteRange range) const {
  RangeSet result;
  if (range.is_empty()) {
    return result;
  }
  for (size_t i = FirstEndingAfter(range.begin); i < ranges_.size() && ranges_[i].begin < range.end; ++i) {
    result.ranges_.push_back({std::max(ranges_[i].begin, range.begin), std::min(ranges_[i].end, range.end)});
  }
  return result;
}

RangeSet RangeSet::Missing(ByteRange range) const {
  RangeSet result;
  if (range.is_empty()) {
    return result;
  }
  uint64_t at = range.begin;
  for (size_t i = FirstEndingAfter(range.begin); i < ranges_.size() && ranges_[i].begin < range.end; ++i) {
    if (ranges_[i].begin > at) {
      result.ranges_.push_back({at, ranges_[i].begin});
    }
    at = ranges_[i].end;
  }
  if (at < range.end) {
    result.ranges_.push_back({at, range.end});
  }
  return result;
}

RangeSet RangeSet::Within(const RangeSet& other) const {
  RangeSet result;
  for (const ByteRange& range : other.ranges_) {
    for (const ByteRange& piece : Within(range).ranges_) {
      result.ranges_.push_back(piece);
    }
  }
  return result;
}

}  // namespace hpvm::scheduler
