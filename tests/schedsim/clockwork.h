// SPDX-License-Identifier: Apache-2.0
// Clockwork determines when the segments of a memory plan run: submitted as the engine does, executed by lanes in
// virtual time.
#ifndef HPVMD_TESTS_SCHEDSIM_CLOCKWORK_H_
#define HPVMD_TESTS_SCHEDSIM_CLOCKWORK_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "scheduler/placement/remainder.h"
#include "scheduler/residency/residency.h"
#include "tests/schedsim/execution.h"

namespace hpvm::schedsim {

class Clockwork {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kNotRun = std::numeric_limits<int64_t>::min();

  // Borrows its arguments. Adds to the execution's faults, end and times of tasks.
  Clockwork(const ExecutionInput& input, Execution* out) : in_(input), plan_(input.plan), out_(*out) {}

  // Like the engine: driver segments are submitted ahead, in plan order and within the window; host segments run on
  // the submitting thread, in plan order. A pass begins when all of the previous one has ended. Returns true when all
  // of it ran.
  bool Pass(const scheduler::StepRange& range);

  // Times of the last pass, by step; kNotRun for steps that did not run.
  const std::vector<int64_t>& start() const { return start_; }
  const std::vector<int64_t>& end() const { return end_; }
  // Submitted segments that did not end may have had any effect.
  std::vector<scheduler::SegmentState> States() const;
  int64_t longest() const { return longest_; }  // Longest step that ran.

 private:
  static constexpr int64_t kWaits = kNever - 1;  // For something that is not settled yet.

  // State of a segment in a pass.
  struct Flight {
    bool is_submitted = false, is_settled = false, is_done = false;
    int64_t submitted = 0, end = 0;
  };

  const scheduler::Segment& At(uint32_t s) const { return plan_.segments[range_.first_segment + s]; }
  static uint32_t LaneOf(const scheduler::Segment& segment) {
    return segment.device * static_cast<uint32_t>(kLanes) + static_cast<uint32_t>(segment.lane);
  }
  bool IsInline(const scheduler::Segment& segment) const {
    return in_.plan_input.devices[segment.device].space == scheduler::kHostSpace;
  }
  bool IsLost(const scheduler::Segment& segment, int64_t at) const {
    return in_.lost_at >= 0 && segment.device == in_.lost_device && at >= in_.lost_at;
  }
  bool IsStopped(int64_t at) const { return in_.stop_at >= 0 && at >= in_.stop_at; }
  void Add(const std::string& fault) { out_.faults.push_back(fault); }
  bool CheckWaits();
  int64_t Ready(uint32_t s, bool* fails) const;
  void Settle();
  int64_t SubmitAhead();
  bool RunHere(uint32_t s);
  void RunSegment(uint32_t s, int64_t at);

  const ExecutionInput& in_;
  const scheduler::Residency& plan_;
  Execution& out_;
  // Range of the pass.
  scheduler::StepRange range_;
  std::vector<Flight> flights_;                          // Indexed by segment.
  std::map<uint32_t, std::vector<uint32_t>> in_flight_;  // Keyed by lane.
  std::map<uint32_t, int64_t> lane_end_;
  std::vector<int64_t> start_, end_;  // Indexed by step.
  uint32_t next_ = 0;                 // The next segment to submit ahead.
  int64_t thread_ = 0, blocked_ = 0;
  bool is_broken_ = false;  // Something failed, and nothing starts any more.
  int64_t longest_ = 0;
};

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_CLOCKWORK_H_
