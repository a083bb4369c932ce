// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/race_detector.h"

#include <algorithm>
#include <utility>

#include "scheduler/testing/plan_shape.h"

namespace hpvm::scheduler {

RaceDetector::RaceDetector(const ResidencyInput& input, const Residency& plan, const StepRange& range)
    : plan_(plan),
      first_(range.first_segment),
      clock_(range.segment_count, std::vector<uint32_t>(input.devices.size() * kLanes)),
      rank_(range.segment_count),
      done_(input.devices.size() * kLanes) {}

uint32_t RaceDetector::LaneOf(uint32_t segment) const {
  return static_cast<uint32_t>(plan_.segments[segment].device * kLanes +
                               static_cast<size_t>(plan_.segments[segment].lane));
}

void RaceDetector::Begin(uint32_t segment) {
  current_ = segment;
  std::vector<uint32_t>& clock = clock_[segment - first_];
  const uint32_t lane = LaneOf(segment);
  const auto join = [&](uint32_t earlier) {
    const std::vector<uint32_t>& other = clock_[earlier - first_];
    for (size_t l = 0; l < clock.size(); ++l) {
      clock[l] = std::max(clock[l], other[l]);
    }
    uint32_t& own = clock[LaneOf(earlier)];
    own = std::max(own, rank_[earlier - first_]);
  };
  // A lane runs its segments one after another.
  for (uint32_t earlier = segment; earlier-- > first_;) {
    if (LaneOf(earlier) == lane) {
      join(earlier);
      break;
    }
  }
  const Segment& s = plan_.segments[segment];
  for (uint32_t w = s.first_wait; w < s.first_wait + s.wait_count; ++w) {
    join(plan_.waits[w].segment);
  }
  rank_[segment - first_] = ++done_[lane];
}

bool RaceDetector::HasHappened(uint32_t segment) const {
  return segment == current_ || clock_[current_ - first_][LaneOf(segment)] >= rank_[segment - first_];
}

std::string RaceDetector::Access(uint64_t memory, ByteRange range, bool writes, uint32_t step) {
  uint32_t race = Last::kNone;
  memories_[memory].Change(range, [&](Last& last) {
    if (last.writer != Last::kNone && !HasHappened(last.writer)) {
      race = last.writer;
    }
    if (!writes) {
      last.readers[LaneOf(current_)] = current_;
      return;
    }
    for (const auto& [lane, reader] : last.readers) {
      if (!HasHappened(reader)) {
        race = reader;
      }
    }
    last = {.writer = current_, .readers = {}};
  });
  return race == Last::kNone ? ""
                             : "Step " + std::to_string(step) + " of segment " + std::to_string(current_) +
                                   " races with segment " + std::to_string(race) + ", for which it does not wait.";
}

std::vector<std::string> CheckOrder(const ResidencyInput& input, const Residency& plan, const Segment& segment,
                                    const StepOrder& order) {
  const uint32_t count = segment.step_count;
  std::vector<std::string> faults;
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  std::vector<uint32_t> predecessors(count);
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t e = order.first_successor[i]; e < order.first_successor[i + 1]; ++e) {
      const uint32_t later = order.successors[e];
      if (later <= i || later >= count) {
        faults.push_back("Step " + std::to_string(later) + " of a segment succeeds step " + std::to_string(i) + ".");
        return faults;
      }
      ++predecessors[later];
      before[later][i] = true;
      for (uint32_t e2 = 0; e2 < i; ++e2) {
        before[later][e2] = before[later][e2] || before[i][e2];
      }
    }
  }
  if (predecessors != order.predecessors) {
    faults.push_back("The counts of predecessors do not agree with the successors.");
  }
  struct Accessed {
    uint64_t memory;
    ByteRange range;
    bool writes;
    uint32_t step;
  };
  std::vector<Accessed> accessed;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t earlier = accessed.size();
    for (const StepAccess& access : AccessesOf(input, plan, segment.first_step + i)) {
      const Storage& storage = plan.storages[access.storage.index];
      const bool is_temporary = storage.kind == Storage::Kind::kTemporary;
      const uint64_t base = is_temporary ? storage.offset - storage.first : 0;
      accessed.push_back({is_temporary ? uint64_t{storage.space} : (uint64_t{1} << 32) + access.storage.index,
                          {base + access.range.begin, base + access.range.end},
                          access.writes,
                          i});
    }
    for (size_t a = 0; a < earlier; ++a) {
      for (size_t b = earlier; b < accessed.size(); ++b) {
        const bool overlaps = accessed[a].memory == accessed[b].memory &&
                              accessed[a].range.begin < accessed[b].range.end &&
                              accessed[b].range.begin < accessed[a].range.end;
        if (overlaps && (accessed[a].writes || accessed[b].writes) && !before[i][accessed[a].step]) {
          faults.push_back("Steps " + std::to_string(accessed[a].step) + " and " + std::to_string(i) +
                           " of the segment at step " + std::to_string(segment.first_step) +
                           " conflict and are not ordered.");
          return faults;
        }
      }
    }
  }
  return faults;
}

}  // namespace hpvm::scheduler
