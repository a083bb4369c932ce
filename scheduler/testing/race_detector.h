// SPDX-License-Identifier: Apache-2.0
// RaceDetector checks, with vector clocks over lanes, that conflicting accesses of a plan's segments are ordered
// whatever the devices' speeds.
#ifndef HPVMD_SCHEDULER_TESTING_RACE_DETECTOR_H_
#define HPVMD_SCHEDULER_TESTING_RACE_DETECTOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/residency/order.h"
#include "scheduler/residency/residency.h"
#include "scheduler/testing/interval_map.h"

namespace hpvm::scheduler {

class RaceDetector {
 public:
  // Checks the segments of one stage; stages do not overlap.
  RaceDetector(const ResidencyInput& input, const Residency& plan, const StepRange& range);
  // Begins a segment, to which later accesses belong; segments come in the order of the plan.
  void Begin(uint32_t segment);
  // Returns a sentence when an earlier access conflicts and is not ordered before this one.
  std::string Access(uint64_t memory, ByteRange range, bool writes, uint32_t step);

 private:
  struct Last {
    static constexpr uint32_t kNone = 0xffffffffu;
    uint32_t writer = kNone;                // A segment.
    std::map<uint32_t, uint32_t> readers;   // Readers since then: by lane, the last segment.
  };
  uint32_t LaneOf(uint32_t segment) const;
  bool HasHappened(uint32_t segment) const;

  const Residency& plan_;
  const uint32_t first_;
  uint32_t current_ = 0;
  // Indexed by segment and lane: number of the lane's segments that are done before it.
  std::vector<std::vector<uint32_t>> clock_;
  std::vector<uint32_t> rank_;                // Indexed by segment: its number in its lane, from 1.
  std::vector<uint32_t> done_;                // Indexed by lane: number of segments begun.
  std::map<uint64_t, IntervalMap<Last>> memories_;
};

// Returns the conflicting steps of a segment that have no path of edges between them.
std::vector<std::string> CheckOrder(const ResidencyInput& input, const Residency& plan, const Segment& segment,
                                    const StepOrder& order);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_RACE_DETECTOR_H_
