// SPDX-License-Identifier: Apache-2.0
// Sets of bytes as sorted, disjoint, non-adjacent ranges. Most sets hold one range, so they are plain vectors.
#ifndef HPVMD_SCHEDULER_RESIDENCY_RANGE_SET_H_
#define HPVMD_SCHEDULER_RESIDENCY_RANGE_SET_H_

#include <cstdint>
#include <vector>

#include "scheduler/task.h"

namespace hpvm::scheduler {

class RangeSet {
 public:
  RangeSet() = default;
  explicit RangeSet(ByteRange range) { Add(range); }

  const std::vector<ByteRange>& ranges() const { return ranges_; }
  bool is_empty() const { return ranges_.empty(); }
  uint64_t bytes() const;
  bool Contains(ByteRange range) const;  // True for an empty range.
  bool Contains(const RangeSet& other) const;
  bool Overlaps(ByteRange range) const;
  void Add(ByteRange range);
  void Add(const RangeSet& other);
  void Remove(ByteRange range);
  void Remove(const RangeSet& other);
  // Return the part of `range` that is in the set, and the part that is not.
  RangeSet Within(ByteRange range) const;
  RangeSet Missing(ByteRange range) const;
  RangeSet Within(const RangeSet& other) const;
  friend bool operator==(const RangeSet&, const RangeSet&) = default;

 private:
  size_t FirstEndingAfter(uint64_t at) const;  // Index of the first range whose end is greater than `at`.
  std::vector<ByteRange> ranges_;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RANGE_SET_H_
