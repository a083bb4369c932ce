// SPDX-License-Identifier: Apache-2.0
#include "engine/run/run_stage.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace hpvm::engine {
namespace {

// Interval at which a waiting host polls the stop word, which nobody signals.
constexpr Duration kStopPoll = std::chrono::milliseconds(2);

}  // namespace

Status CheckTime(const StageOptions& options) {
  const bool is_late = options.deadline != kNever && options.clock.Now() >= options.deadline;
  if (is_late) {
    return DeadlineExceeded("The run's deadline has passed.");
  }
  return options.stop.load(std::memory_order_relaxed) != 0 ? Cancelled("The run was cancelled.") : absl::OkStatus();
}

StageRunner::StageRunner(const StageOptions& options, Plan& plan)
    : options_(options), plan_(plan), queues_(plan.queues.size()) {
  for (size_t i = 0; i < queues_.size(); ++i) {
    Queue& queue = queues_[i];
    queue.plan = &plan.queues[i];
    queue.device = plan.devices[queue.plan->device];
    queue.runs_inline = queue.device->info().runs_inline;
    has_drivers_ |= !queue.runs_inline;
  }
}

Status StageRunner::Run(const StagePass& pass) {
  const uint64_t number = passes_++;
  stages_[number % kRemembered] = pass.stage;
  segments_ = {plan_.segments.data() + pass.stage->first_segment, pass.stage->segment_count};
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].is_fresh = true;
    queues_[i].begins[number % kRemembered] = queues_[i].plan->base;
    queues_[i].ends[number % kRemembered] = queues_[i].plan->base + pass.stage->steps[i];
  }
  Status status = RunSegments(pass);
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].plan->base += pass.stage->steps[i];
  }
  return status.ok() ? status : Abandon(std::move(status));
}

Status StageRunner::RunSegments(const StagePass& pass) {
  next_ = 0;
  blocked_.reset();
  HPVMD_RETURN_IF_ERROR(CheckTime(options_));
  for (const PlanSegment& segment : segments_) {
    if (queues_[segment.queue].runs_inline) {
      HPVMD_RETURN_IF_ERROR(RunHere(segment, pass));
    }
  }
  while (has_drivers_) {
    HPVMD_RETURN_IF_ERROR(SubmitAhead(pass));
    if (!blocked_.has_value()) {
      break;
    }
    HPVMD_RETURN_IF_ERROR(Await({&*blocked_, 1}));
  }
  return absl::OkStatus();
}

// Submits segments as far as the window and late extents allow; then `blocked_` is the point that the next one waits
// for.
Status StageRunner::SubmitAhead(const StagePass& pass) {
  blocked_.reset();
  for (Queue& queue : queues_) {
    if (!queue.runs_inline) {
      HPVMD_RETURN_IF_ERROR(Retire(queue));
    }
  }
  for (; next_ < segments_.size(); ++next_) {
    const PlanSegment& segment = segments_[next_];
    Queue& queue = queues_[segment.queue];
    if (queue.runs_inline) {
      continue;
    }
    bool is_blocked = false;
    HPVMD_RETURN_IF_ERROR(SubmitQueued(segment, queue, pass, &is_blocked));
    if (is_blocked) {
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

Status StageRunner::SubmitQueued(const PlanSegment& segment, Queue& queue, const StagePass& pass, bool* is_blocked) {
  *is_blocked = true;
  if (queue.count == kWindow) {
    blocked_ = queue.ring[queue.first]->signal;
    return absl::OkStatus();
  }
  Flight& flight = NextFlight(queue);
  HPVMD_RETURN_IF_ERROR(FindWaits(segment, queue, &flight.waits));
  const CommandList* commands = &segment.commands;
  if (!segment.late.empty()) {
    if (!flight.waits.empty()) {
      blocked_ = flight.waits.front();
      return absl::OkStatus();
    }
    if (Status status = PatchExtents(segment, pass, flight); !status.ok()) {
      return Blame(segment, flight.failure, std::move(status));
    }
    commands = &flight.patched;
  }
  *is_blocked = false;
  AddNote(segment);
  HPVMD_RETURN_IF_ERROR(Submit(segment, *commands, queue, pass, flight));
  ++queue.count;
  return absl::OkStatus();
}

Status StageRunner::RunHere(const PlanSegment& segment, const StagePass& pass) {
  Queue& queue = queues_[segment.queue];
  while (true) {
    if (has_drivers_) {
      HPVMD_RETURN_IF_ERROR(SubmitAhead(pass));
    }
    HPVMD_RETURN_IF_ERROR(FindWaits(segment, queue, &here_.waits));
    if (here_.waits.empty()) {
      break;
    }
    if (blocked_.has_value()) {
      here_.waits.push_back(*blocked_);
    }
    HPVMD_RETURN_IF_ERROR(Await(here_.waits));
  }
  HPVMD_RETURN_IF_ERROR(CheckTime(options_));
  here_.failure = Failure();
  HPVMD_RETURN_IF_ERROR(Submit(segment, segment.commands, queue, pass, here_));
  Status status = here_.signal.timeline->Wait(here_.signal.value, kNever);
  return status.ok() ? status : Blame(segment, here_.failure, std::move(status));
}

Status StageRunner::Submit(const PlanSegment& segment, const CommandList& commands, Queue& queue, const StagePass& pass,
                           Flight& flight) {
  flight.segment = &segment;
  flight.pass = passes_ - 1;
  flight.signal = {queue.plan->timeline.get(), queue.plan->base + segment.signal};
  queue.is_fresh = false;
  queue.submitted = flight.signal.value;
  Status status = queue.device->Submit({.waits = flight.waits,
                                        .lane = queue.plan->lane,
                                        .commands = &commands,
                                        .buffers = pass.buffers[queue.plan->device],
                                        .scalars = plan_.scalars,
                                        .signals = {&flight.signal, 1},
                                        .stop = queue.runs_inline ? &options_.stop : &stop_drivers_,
                                        .timings = pass.timings,
                                        .failure = &flight.failure,
                                        .log = options_.log,
                                        .check = options_.check});
  return status.ok() ? status : Blame(segment, flight.failure, std::move(status));
}

// Returns the points that the segment waits for and that are not reached yet.
Status StageRunner::FindWaits(const PlanSegment& segment, const Queue& queue, std::vector<TimelinePoint>* waits) const {
  waits->clear();
  const auto add = [&](const TimelinePoint& point) {
    Status failure;
    switch (Poll(point, &failure)) {
      case PointState::kReached:
        return absl::OkStatus();
      case PointState::kPending:
        waits->push_back(point);
        return absl::OkStatus();
      case PointState::kFailed:
        return failure;
    }
    return absl::OkStatus();
  };
  for (const PlanWait& wait : segment.waits) {
    const PlanQueue& other = *queues_[wait.queue].plan;
    HPVMD_RETURN_IF_ERROR(add({other.timeline.get(), other.base + wait.value}));
  }
  for (size_t i = 0; queue.is_fresh && i < queues_.size(); ++i) {
    if (const PlanQueue& other = *queues_[i].plan; other.base > 0) {
      HPVMD_RETURN_IF_ERROR(add({other.timeline.get(), other.base}));
    }
  }
  return absl::OkStatus();
}

// Waits until one of the points is reached or failed, or until the stop word must be polled again.
Status StageRunner::Await(std::span<const TimelinePoint> points) {
  const Time soon = options_.clock.Now() + kStopPoll;
  const StatusOr<size_t> settled = options_.hub.WaitAny(points, std::min(options_.deadline, soon));
  return settled.ok() ? absl::OkStatus() : CheckTime(options_);
}

// Writes the extents that are known now into a copy of the commands. Removes launches without instances.
Status StageRunner::PatchExtents(const PlanSegment& segment, const StagePass& pass, Flight& flight) {
  flight.patched.commands.assign(segment.commands.commands.begin(), segment.commands.commands.end());
  flight.patched.arguments.assign(segment.commands.arguments.begin(), segment.commands.arguments.end());
  for (const LateExtent& late : segment.late) {
    auto& dispatch = std::get<DispatchCommand>(flight.patched.commands[late.command]);
    const uint8_t* data = pass.buffers[late.device][late.slot]->host() + late.offset;
    uint64_t extent = 0;
    for (uint32_t i = 0; i < late.bytes; ++i) {
      extent |= uint64_t{data[i]} << (8 * i);
    }
    if (extent > late.limit) {
      flight.failure.node = dispatch.node;
      return Aborted("The number of instances that the graph computed for dimension " + std::to_string(late.dimension) +
                     " (" + std::to_string(extent) + ") is larger than the node's limit (" +
                     std::to_string(late.limit) + ").");
    }
    dispatch.extent[late.dimension] = extent;
  }
  std::erase_if(flight.patched.commands, [&](const Command& command) {
    const auto* dispatch = std::get_if<DispatchCommand>(&command);
    const bool is_empty = dispatch != nullptr && std::ranges::count(dispatch->extent, uint64_t{0}) > 0;
    if (is_empty && dispatch->node < pass.timings.size()) {
      pass.timings[dispatch->node] = NodeTiming();
    }
    return is_empty;
  });
  return absl::OkStatus();
}

// Removes ended submissions.
Status StageRunner::Retire(Queue& queue) {
  while (queue.count > 0) {
    Status failure;
    switch (Poll(queue.ring[queue.first]->signal, &failure)) {
      case PointState::kPending:
        return absl::OkStatus();
      case PointState::kFailed:
        return failure;
      case PointState::kReached:
        queue.first = (queue.first + 1) % kWindow;
        --queue.count;
    }
  }
  return absl::OkStatus();
}

// Returns the entry after those in the ring; it counts once it is submitted.
StageRunner::Flight& StageRunner::NextFlight(Queue& queue) {
  const uint32_t at = (queue.first + queue.count) % kWindow;
  if (at >= queue.ring.size()) {
    queue.ring.push_back(std::make_unique<Flight>());
  }
  Flight& flight = *queue.ring[at];
  flight.failure = Failure();
  return flight;
}

// The note has little room: when it is full, ended segments are removed from it.
void StageRunner::AddNote(const PlanSegment& segment) {
  if (segment.note.empty() || note_.Add(segment.note)) {
    return;
  }
  note_.Clear();
  for (const Queue& queue : queues_) {
    for (uint32_t i = 0; i < queue.count; ++i) {
      const PlanSegment& flying = *queue.ring[(queue.first + i) % kWindow]->segment;
      if (!flying.note.empty()) {
        note_.Add(flying.note);
      }
    }
  }
  note_.Add(segment.note);
}

Status StageRunner::Finish(uint64_t passes) {
  if (!has_drivers_ || passes == 0) {
    return absl::OkStatus();
  }
  HPVMD_CHECK(passes <= passes_ && passes + kRemembered > passes_);
  for (Queue& queue : queues_) {
    const TimelinePoint end{queue.plan->timeline.get(), queue.ends[(passes - 1) % kRemembered]};
    Status failure;
    while (!queue.runs_inline) {
      const PointState state = Poll(end, &failure);
      if (state == PointState::kReached) {
        break;
      }
      Status status = state == PointState::kFailed ? failure : Await({&end, 1});
      if (!status.ok()) {
        return Abandon(std::move(status));
      }
    }
  }
  if (passes == passes_) {
    note_.Clear();
  }
  return absl::OkStatus();
}

Status StageRunner::Blame(const PlanSegment& segment, const Failure& failure, Status status) {
  failure_ = {status, &segment, failure, passes_ - 1};
  has_blame_ = true;
  return status;
}

// Ends all submitted work, and determines the first failure.
Status StageRunner::Abandon(Status status) {
  stop_drivers_.store(1, std::memory_order_relaxed);
  // Submissions that wait for segments of this thread, which will not run, end with the failure.
  for (const Queue& queue : queues_) {
    if (queue.runs_inline) {
      queue.plan->timeline->Fail(status);
    }
  }
  for (Queue& queue : queues_) {
    for (uint32_t i = 0; i < queue.count; ++i) {
      const TimelinePoint& signal = queue.ring[(queue.first + i) % kWindow]->signal;
      (void)signal.timeline->Wait(signal.value, kNever);  // FindCause examines the outcome.
    }
  }
  note_.Clear();
  FindCause(std::move(status));
  return failure_.status;
}

// The failure that causes others precedes them in the plan. A segment that was only stopped is not to blame.
void StageRunner::FindCause(Status status) {
  const bool was_stopped = !CheckTime(options_).ok();
  if (!has_blame_) {
    failure_ = {std::move(status), nullptr, {}, passes_ - 1};
  }
  bool is_cancelled = !has_blame_ || absl::IsCancelled(failure_.status);
  uint64_t first_broken = failure_.pass;
  for (const Queue& queue : queues_) {
    for (uint32_t i = 0; i < queue.count; ++i) {
      const Flight& flight = *queue.ring[(queue.first + i) % kWindow];
      Status why;
      if (Poll(flight.signal, &why) != PointState::kFailed) {
        continue;
      }
      first_broken = std::min(first_broken, flight.pass);
      const bool cancelled = absl::IsCancelled(why);
      if (cancelled && !was_stopped) {
        continue;  // Cancelled because of another failure.
      }
      const bool is_first = failure_.segment == nullptr || std::tie(cancelled, flight.pass, flight.segment) <
                                                               std::tie(is_cancelled, failure_.pass, failure_.segment);
      if (is_first) {
        failure_ = {std::move(why), flight.segment, flight.failure, flight.pass};
        is_cancelled = cancelled;
      }
    }
  }
  // A pass before the failing one was interrupted by it.
  failure_.pass = std::min(failure_.pass, first_broken);
}

std::vector<scheduler::SegmentState> StageRunner::States() const {
  using scheduler::SegmentState;
  const PlanStage& stage = *stages_[failure_.pass % kRemembered];
  std::vector<SegmentState> states(stage.segment_count, SegmentState::kUntouched);
  for (uint32_t i = 0; i < stage.segment_count; ++i) {
    const PlanSegment& segment = plan_.segments[stage.first_segment + i];
    const Queue& queue = queues_[segment.queue];
    const uint64_t value = queue.begins[failure_.pass % kRemembered] + segment.signal;
    if (value <= queue.submitted) {
      states[i] = Poll({queue.plan->timeline.get(), value}) == PointState::kReached ? SegmentState::kDone
                                                                                    : SegmentState::kBroken;
    }
  }
  return states;
}

}  // namespace hpvm::engine
