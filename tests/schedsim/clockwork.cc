// SPDX-License-Identifier: Apache-2.0
#include "tests/schedsim/clockwork.h"

#include <algorithm>

namespace hpvm::schedsim {

using scheduler::Segment;
using scheduler::SegmentState;
using scheduler::Step;

bool Clockwork::Pass(const scheduler::StepRange& range) {
  range_ = range;
  flights_.assign(range.segment_count, {});
  in_flight_.clear();
  lane_end_.clear();
  start_.assign(plan_.steps.size(), kNotRun);
  end_.assign(plan_.steps.size(), kNotRun);
  next_ = 0;
  thread_ = out_.end;
  bool goes_on = CheckWaits() && !IsStopped(thread_);
  for (uint32_t s = 0; s < range.segment_count && goes_on; ++s) {
    goes_on = !IsInline(At(s)) || RunHere(s);
  }
  while (goes_on && !is_broken_ && SubmitAhead() < kWaits) {
    thread_ = std::max(thread_, blocked_);
  }
  Settle();
  const bool is_complete =
      std::all_of(flights_.begin(), flights_.end(), [](const Flight& flight) { return flight.is_done; });
  if (goes_on && !is_complete && !is_broken_) {
    Add("ends: A segment waits for ever.");
  }
  return is_complete;
}

bool Clockwork::CheckWaits() {
  for (uint32_t s = 0; s < range_.segment_count; ++s) {
    for (uint32_t w = 0; w < At(s).wait_count; ++w) {
      const uint32_t other = plan_.waits[At(s).first_wait + w].segment;
      if (other < range_.first_segment || other >= range_.first_segment + s) {
        Add("ends: Segment " + std::to_string(range_.first_segment + s) + " waits for segment " +
            std::to_string(other) + ", which does not come before it.");
        return false;
      }
    }
  }
  return true;
}

// Returns when the segment's wait points are reached; kNever when not before others continue. `*fails` is set when
// never.
int64_t Clockwork::Ready(uint32_t s, bool* fails) const {
  int64_t ready = 0;
  for (uint32_t w = 0; w < At(s).wait_count; ++w) {
    const Flight& other = flights_[plan_.waits[At(s).first_wait + w].segment - range_.first_segment];
    *fails = *fails || (other.is_settled && !other.is_done);
    ready = std::max(ready, other.is_settled ? other.end : kNever);
  }
  return ready;
}

// Drivers start submitted segments as soon as they can.
void Clockwork::Settle() {
  for (uint32_t s = 0; s < next_; ++s) {
    Flight& flight = flights_[s];
    if (!flight.is_submitted || flight.is_settled) {
      continue;
    }
    bool fails = false;
    const int64_t ready = Ready(s, &fails);
    if (fails) {
      flight.is_settled = true;
      flight.end = thread_;
      is_broken_ = true;
    } else if (ready != kNever) {
      RunSegment(s, std::max({ready, flight.submitted, lane_end_[LaneOf(At(s))]}));
    }
  }
}

// Returns, and leaves in blocked_, when submission can continue; kNever when all is submitted.
int64_t Clockwork::SubmitAhead() {
  for (; next_ < range_.segment_count; ++next_) {
    const Segment& segment = At(next_);
    if (IsInline(segment)) {
      continue;
    }
    Settle();
    std::vector<uint32_t>& flying = in_flight_[LaneOf(segment)];
    std::erase_if(flying, [&](uint32_t s) { return flights_[s].is_settled && flights_[s].end <= thread_; });
    if (flying.size() >= in_.window) {
      return blocked_ = flights_[flying.front()].is_settled ? flights_[flying.front()].end : kWaits;
    }
    if (plan_.steps[segment.first_step].has_late_extent) {
      bool fails = false;
      const int64_t ready = Ready(next_, &fails);
      if (ready > thread_) {
        return blocked_ = ready == kNever ? kWaits : ready;
      }
    }
    flights_[next_].is_submitted = true;
    flights_[next_].submitted = thread_;
    flying.push_back(next_);
  }
  Settle();
  return blocked_ = kNever;
}

// Runs a segment of the submitting thread itself.
bool Clockwork::RunHere(uint32_t s) {
  while (true) {
    SubmitAhead();
    bool fails = false;
    const int64_t ready = Ready(s, &fails);
    if (fails || is_broken_ || (ready == kNever && blocked_ >= kWaits)) {
      if (!fails && !is_broken_) {
        Add("ends: The host waits for ever.");
      }
      return false;
    }
    if (ready <= thread_) {
      break;
    }
    thread_ = std::max(thread_, std::min(ready, blocked_));
  }
  if (IsStopped(thread_)) {
    return false;
  }
  flights_[s].is_submitted = true;
  RunSegment(s, thread_);
  thread_ = flights_[s].end;
  return flights_[s].is_done;
}

void Clockwork::RunSegment(uint32_t s, int64_t at) {
  const Segment& segment = At(s);
  Flight& flight = flights_[s];
  flight.is_settled = true;
  flight.is_done = true;
  for (uint32_t i = segment.first_step; i < segment.first_step + segment.step_count && flight.is_done; ++i) {
    if (IsLost(segment, at) || IsStopped(at) || is_broken_) {
      flight.is_done = false;
      break;
    }
    const Step& step = plan_.steps[i];
    const int64_t takes = in_.duration(step);
    longest_ = std::max(longest_, takes);
    start_[i] = at;
    at += takes;
    out_.end = std::max(out_.end, at);
    // The step began, and its effect is unknown.
    flight.is_done = !IsLost(segment, at) && !(step.kind == Step::Kind::kRun && step.task == in_.failing_task);
    end_[i] = flight.is_done ? at : kNotRun;
    if (flight.is_done && step.kind == Step::Kind::kRun) {
      if (out_.task_ns[step.task] >= 0) {
        Add("once: Task " + std::to_string(step.task) + " runs twice.");
      }
      out_.task_ns[step.task] = takes;
    }
  }
  is_broken_ = is_broken_ || !flight.is_done;
  flight.end = at;
  lane_end_[LaneOf(segment)] = at;
}

std::vector<SegmentState> Clockwork::States() const {
  std::vector<SegmentState> states;
  for (const Flight& flight : flights_) {
    states.push_back(flight.is_done        ? SegmentState::kDone
                     : flight.is_submitted ? SegmentState::kBroken
                                           : SegmentState::kUntouched);
  }
  return states;
}

}  // namespace hpvm::schedsim
