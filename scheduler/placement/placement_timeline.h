// SPDX-License-Identifier: Apache-2.0
// Timeline tracks when a resource that does one job at a time (a lane of a processor, a link) is free: its idle gaps,
// and the time after which nothing is planned. At most `gaps_max` gaps are remembered, the latest ones; older gaps
// count as busy, so that the cost of a lookup is bounded however long the plan is. Not thread-safe.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_TIMELINE_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_TIMELINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hpvm::scheduler::placing {

class Timeline {
 public:
  void Clear() {
    gaps_.clear();
    tail_ = 0;
  }
  int64_t tail() const { return tail_; }

  // Returns the earliest start not before `from` of `length` > 0 idle nanoseconds.
  int64_t Find(int64_t from, int64_t length) const {
    if (from >= tail_) {
      return from;
    }
    auto gap = std::partition_point(gaps_.begin(), gaps_.end(), [&](const Gap& g) { return g.end <= from; });
    for (; gap != gaps_.end(); ++gap) {
      const int64_t start = std::max(gap->start, from);
      if (gap->end - start >= length) {
        return start;
      }
    }
    return tail_;
  }

  // Marks the time as busy; it was idle when Find was called. A gap forgotten since then already counts as busy.
  void Take(int64_t start, int64_t length, size_t gaps_max) {
    if (start >= tail_) {
      if (start > tail_ && gaps_max > 0) {
        if (gaps_.size() >= gaps_max) {
          gaps_.erase(gaps_.begin());
        }
        gaps_.push_back({tail_, start});
      }
      tail_ = start + length;
      return;
    }
    const auto gap = std::partition_point(gaps_.begin(), gaps_.end(), [&](const Gap& g) { return g.end <= start; });
    if (gap == gaps_.end() || gap->start > start || gap->end < start + length) {
      return;
    }
    const Gap after{start + length, gap->end};
    if (gap->start < start) {
      gap->end = start;
      if (after.start < after.end && gaps_.size() < gaps_max) {
        gaps_.insert(gap + 1, after);
      }
    } else if (after.start < after.end) {
      *gap = after;
    } else {
      gaps_.erase(gap);
    }
  }

 private:
  struct Gap {
    int64_t start, end;
  };
  std::vector<Gap> gaps_;  // Disjoint gaps before the tail, sorted by time.
  int64_t tail_ = 0;
};

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_TIMELINE_H_
