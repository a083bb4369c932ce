// SPDX-License-Identifier: Apache-2.0
// Method: discrete-event simulation. The lane whose next step can begin first advances by one step; the segments of
// the submitting thread advance whole.
// Invariants: a queue's time is the end of its last step; ends_ is kNever until a segment has ended; a resource is
// free from the end of its last use. Steps of queues on one resource therefore never overlap, and none begins
// before the segments that its own waits for have ended.
// Each round completes a step or a segment. Segments wait only for earlier ones, so some queue can always advance.
// Steps are capped at a day, so that times add up without overflow.
#include "scheduler/residency/forecast.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace hpvm::scheduler {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr uint32_t kNone = 0xffffffffu;
// Speed of memory whose description gives none.
constexpr double kBytesPerNs = 10;
// Upper limit of a step's time (a day), so that the times of a plan add up without overflow.
constexpr int64_t kStepNsMax = int64_t{86'400} * 1'000'000'000;

class Run {
 public:
  Run(const ForecastInput& input, const StepRange& stage)
      : in_(input), first_(stage.first_segment), ends_(stage.segment_count, kNever) {
    FindResources();
    for (uint32_t s = 0; s < ends_.size(); ++s) {
      Queue& queue = queues_[IsInline(At(s)) ? kNone : KeyOf(At(s))];
      queue.is_inline = IsInline(At(s));
      queue.segments.push_back(s);
    }
  }

  int64_t Go() {
    int64_t end = 0;
    while (Queue* queue = Next()) {
      Advance(*queue);
      end = std::max(end, queue->time);
    }
    return end;
  }

 private:
  struct Queue {
    std::vector<uint32_t> segments;
    bool is_inline = false;
    size_t next = 0;    // Index in segments.
    uint32_t step = 0;  // Number of completed steps of that segment.
    int64_t time = 0;   // End of the last step.
  };
  // Use of one direction of a link, or of a silicon.
  struct Use {
    uint32_t resource = kNone;
    int64_t ns = 0;
    int64_t host_ns = 0;  // Time of the host's copies.
  };

  const Segment& At(uint32_t s) const { return in_.residency.segments[first_ + s]; }
  static uint32_t KeyOf(const Segment& segment) {
    return segment.device * static_cast<uint32_t>(kLanes) + static_cast<uint32_t>(segment.lane);
  }
  bool IsInline(const Segment& segment) const {
    const DeviceFacts& device = in_.devices[segment.device];
    return device.space == kHostSpace && !device.is_gpu && device.tier != Tier::kEmulated;
  }

  void FindResources() {
    std::map<uint32_t, uint32_t> silicons;
    uint32_t spaces = 1;
    for (const DeviceFacts& device : in_.devices) {
      silicon_.push_back(silicons.try_emplace(device.silicon, static_cast<uint32_t>(silicons.size())).first->second);
      spaces = std::max(spaces, device.space + 1);
    }
    first_link_ = static_cast<uint32_t>(silicons.size());
    free_.assign(first_link_ + 2 * size_t{spaces}, 0);
    const double speed = in_.costs.HostCopyBytesPerSecond();
    host_ns_per_byte_ = speed > 0 ? 1e9 / speed : 0;
  }

  // Returns the queue whose next step can begin first; null when all are done.
  Queue* Next() {
    Queue* best = nullptr;
    int64_t best_start = kNever;
    for (auto& [key, queue] : queues_) {
      const int64_t start = queue.next < queue.segments.size() ? StartOf(queue) : kNever;
      if (start < best_start) {
        best = &queue;
        best_start = start;
      }
    }
    return best;
  }

  // Returns kNever when the queue has to wait for another queue.
  int64_t StartOf(const Queue& queue) const {
    const Segment& segment = At(queue.segments[queue.next]);
    int64_t start = queue.time;
    for (uint32_t w = 0; queue.step == 0 && w < segment.wait_count; ++w) {
      const uint32_t other = in_.residency.waits[segment.first_wait + w].segment;
      if (other >= first_) {
        start = std::max(start, ends_[other - first_]);
      }
    }
    if (start == kNever || queue.is_inline) {
      return start;
    }
    const Use use = UseOf(in_.residency.steps[segment.first_step + queue.step]);
    start = use.resource == kNone ? start : std::max(start, free_[use.resource]);
    return use.host_ns > 0 ? std::max(start, host_free_) : start;
  }

  void Advance(Queue& queue) {
    const uint32_t s = queue.segments[queue.next];
    const Segment& segment = At(s);
    const int64_t start = StartOf(queue);
    if (queue.is_inline) {
      queue.time = start + InlineNs(segment);
      queue.step = segment.step_count;
    } else {
      const Use use = UseOf(in_.residency.steps[segment.first_step + queue.step++]);
      queue.time = start + use.ns;
      if (use.resource != kNone) {
        free_[use.resource] = queue.time;
      }
      if (use.host_ns > 0) {
        host_free_ = start + use.host_ns;
      }
    }
    if (queue.step == segment.step_count) {
      ends_[s] = queue.time;
      queue.step = 0;
      ++queue.next;
    }
  }

  // Launches are placed as planned, concurrent or not, with copies and fills between them.
  int64_t InlineNs(const Segment& segment) {
    int64_t ns = 0;
    planned_.clear();
    for (uint32_t i = segment.first_step; i < segment.first_step + segment.step_count; ++i) {
      const Step& step = in_.residency.steps[i];
      if (step.kind == Step::Kind::kRun) {
        planned_.emplace_back(in_.tasks[step.task].start.count(), in_.tasks[step.task].end.count());
      } else {
        ns += UseOf(step).ns;
      }
    }
    std::sort(planned_.begin(), planned_.end());
    int64_t until = std::numeric_limits<int64_t>::min();
    for (const auto& [start, end] : planned_) {
      ns += std::clamp<int64_t>(end - std::max(start, until), 0, kStepNsMax);
      until = std::max(until, end);
    }
    return ns;
  }

  Use UseOf(const Step& step) const {
    const DeviceFacts& device = in_.devices[step.device];
    if (step.kind == Step::Kind::kRun) {
      const Task& task = in_.tasks[step.task];
      return {silicon_[step.device], std::clamp<int64_t>((task.end - task.start).count(), 1, kStepNsMax), 0};
    }
    const SpaceIndex to = in_.residency.storages[step.target.index].space;
    const SpaceIndex from = step.kind == Step::Kind::kCopy ? in_.residency.storages[step.source.index].space : to;
    if (from == to) {
      const double speed = device.bytes_per_second > 0 ? device.bytes_per_second / 1e9 : kBytesPerNs;
      const double touched = static_cast<double>(step.bytes) * (step.kind == Step::Kind::kCopy ? 2 : 1);
      return {silicon_[step.device], Bounded(touched / speed), 0};
    }
    const SpaceIndex space = from == kHostSpace ? to : from;
    const int64_t ns = std::clamp<int64_t>(in_.costs.Transfer(step.bytes, from, to).count(), 1, kStepNsMax);
    if (!device.has_copy_lanes) {
      return {silicon_[step.device], ns, 0};
    }
    const uint32_t link = first_link_ + 2 * space + (from == kHostSpace ? 0 : 1);
    return {link, ns, std::min(ns, Bounded(static_cast<double>(step.bytes) * host_ns_per_byte_) - 1)};
  }

  static int64_t Bounded(double ns) { return 1 + static_cast<int64_t>(std::min(ns, static_cast<double>(kStepNsMax))); }

  const ForecastInput& in_;
  const uint32_t first_;
  std::map<uint32_t, Queue> queues_;  // Keyed by device and lane; kNone is the submitting thread.
  std::vector<int64_t> ends_;         // Indexed by segment; kNever while it has not ended.
  std::vector<uint32_t> silicon_;     // Indexed by device.
  // Index of the first link among the resources: silicons, then two links per space, one per direction.
  uint32_t first_link_ = 0;
  std::vector<int64_t> free_;                         // Indexed by resource: the time from which it is free.
  int64_t host_free_ = 0;                             // The time from which the host's copies are free.
  double host_ns_per_byte_ = 0;                       // 0: the host's copies are no limit.
  std::vector<std::pair<int64_t, int64_t>> planned_;  // Planned launches of one segment.
};

}  // namespace

Duration Forecast(const ForecastInput& input) {
  const int64_t once = Run(input, input.residency.prologue).Go() + Run(input, input.residency.epilogue).Go();
  return Duration(Run(input, input.residency.body).Go() + once / std::max<uint32_t>(input.repeat, 1));
}

}  // namespace hpvm::scheduler
