// SPDX-License-Identifier: Apache-2.0
// Whether conflicting accesses of a plan's segments are ordered, whatever the devices' speeds: vector clocks over
// lanes.
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
  // For the segments of one stage; stages follow each other completely.
  RaceDetector(const ResidencyInput& input, const Residency& plan, const StepRange& range);
  // What follows is in this segment; segments come in the order of the plan.
  void Begin(uint32_t segment);
  // A sentence when an earlier access conflicts and need not have happened yet.
  std::string Access(uint64_t memory, ByteRange range, bool writes, uint32_t step);

 private:
  struct Last {
    static constexpr uint32_t kNone = 0xffffffffu;
    uint32_t writer = kNone;                // Segment.
    std::map<uint32_t, uint32_t> readers;   // Since; by lane, the last segment.
  };
  uint32_t LaneOf(uint32_t segment) const;
  bool HasHappened(uint32_t segment) const;

  const Residency& plan_;
  const uint32_t first_;
  uint32_t current_ = 0;
  // By segment and lane: how many of the lane's segments are done before it.
  std::vector<std::vector<uint32_t>> clock_;
  std::vector<uint32_t> rank_;                // By segment: its number in its lane, from 1.
  std::vector<uint32_t> done_;                // By lane: segments begun.
  std::map<uint64_t, IntervalMap<Last>> memories_;
};

// Steps of a segment that conflict without a path of edges between them.
std::vector<std::string> CheckOrder(const ResidencyInput& input, const Residency& plan, const Segment& segment,
                                    const StepOrder& order);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_RACE_DETECTOR_H_
