// SPDX-License-Identifier: Apache-2.0
// Method: on devices without copy lanes, downloads that others need are hoisted to the earliest place that their
// conflicts allow; then lanes take turns, a lane that only queues before one that occupies the thread, and each
// turn takes as many steps as one submission should have.
// Invariants: a lane keeps the plan's order. A step enters a segment only when all that it depends on are in
// segments, so waits lead backwards only. A segment waits for at most one segment of each other lane, the latest,
// and only if its lane has not waited for that or a later one.
// Every turn places at least one step; some lane is always ready, because the plan's order is an order of
// execution.
#include "scheduler/residency/residency_segments.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/residency/order.h"

namespace hpvm::scheduler {
namespace {

constexpr uint32_t kNone = 0xffffffffu;
// Amount of work that justifies a submission: about the cost of submitting and waiting. A processor's workers
// synchronise at the end of each segment.
constexpr Duration kDriverGrain{10'000};
constexpr Duration kInlineGrain{30'000};

// Devices batch small copies (backends/gpu/small_copies.h).
constexpr uint64_t kSmallCopyBytes = 16 * 1024;
constexpr Duration kSmallCopyTime{100};
// The sum of two such times does not overflow.
constexpr Duration kEndless{Duration::max() / 2};

// A lane that waits only for small work should not also wait for work this many grains long.
constexpr int64_t kLongGrains = 4;

void Permute(uint32_t first_step, const std::vector<uint32_t>& order, Residency& residency) {
  const auto count = static_cast<uint32_t>(order.size());
  std::vector<Step> steps;
  std::vector<Touch> touches;
  std::vector<uint32_t> first_touch;
  steps.reserve(count);
  first_touch.reserve(count);
  const uint32_t first = residency.first_touch[first_step];
  touches.reserve(residency.first_touch[first_step + count] - first);
  for (const uint32_t step : order) {
    steps.push_back(residency.steps[first_step + step]);
    first_touch.push_back(first + static_cast<uint32_t>(touches.size()));
    touches.insert(touches.end(), residency.touches.begin() + residency.first_touch[first_step + step],
                   residency.touches.begin() + residency.first_touch[first_step + step + 1]);
  }
  std::copy(steps.begin(), steps.end(), residency.steps.begin() + first_step);
  std::copy(first_touch.begin(), first_touch.end(), residency.first_touch.begin() + first_step);
  std::copy(touches.begin(), touches.end(), residency.touches.begin() + first);
}

// On devices that copy between launches, downloads that others need are moved as early as possible, because parts of a
// stencil would otherwise run one after another. Downloads that only the caller needs stay after the launches.
void HoistDownloads(const ResidencyInput& input, uint32_t first, uint32_t count, Residency& residency) {
  const auto is_alone = [&](const Step& step) {
    const DeviceFacts& device = input.devices[step.device];
    return step.lane == Lane::kCompute && device.space != kHostSpace && !device.has_copy_lanes;
  };
  const auto is_download = [&](const Step& step) {
    return step.kind == Step::Kind::kCopy && is_alone(step) &&
           residency.storages[step.target.index].space == kHostSpace &&
           residency.storages[step.target.index].kind != Storage::Kind::kOutput;
  };
  std::vector<std::vector<uint32_t>> own(input.devices.size());  // Steps of such devices, counted from `first`.
  std::vector<uint32_t> device_of(count);
  bool has_downloads = false;
  for (uint32_t i = 0; i < count; ++i) {
    const Step& step = residency.steps[first + i];
    device_of[i] = step.device;
    if (is_alone(step)) {
      own[step.device].push_back(i);
    }
    has_downloads = has_downloads || is_download(step);
  }
  if (!has_downloads) {
    return;
  }
  ConflictMap conflicts(&device_of);
  std::vector<uint32_t> earlier;
  std::vector<std::pair<uint32_t, uint32_t>> order;  // The step before or at which it is placed, and the step.
  for (uint32_t i = 0; i < count; ++i) {
    const Step& step = residency.steps[first + i];
    earlier.clear();
    for (uint32_t t = residency.first_touch[first + i]; t < residency.first_touch[first + i + 1]; ++t) {
      const MemoryRange place = Locate(residency, residency.touches[t]);
      conflicts.Access(place.memory, place.range, residency.touches[t].writes, i, earlier);
    }
    uint32_t at = i;
    if (is_download(step)) {
      const uint32_t free = earlier.empty() ? 0 : *std::max_element(earlier.begin(), earlier.end()) + 1;
      at = *std::lower_bound(own[step.device].begin(), own[step.device].end(), free);
    }
    order.emplace_back(at, i);
  }
  // Steps moved before another step keep their order; that step itself comes last.
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.first, a.first == a.second) < std::tuple(b.first, b.first == b.second);
  });
  std::vector<uint32_t> steps;
  for (const auto& [at, step] : order) {
    steps.push_back(step);
  }
  if (!std::is_sorted(steps.begin(), steps.end())) {
    Permute(first, steps, residency);
  }
}

class Cutter {
 public:
  Cutter(const ResidencyInput& input, uint32_t first, uint32_t count, Residency& residency)
      : input_(input), first_(first), count_(count), out_(residency), lanes_(input.devices.size() * kLanes) {}

  StepRange Run() {
    const uint32_t first_segment = static_cast<uint32_t>(out_.segments.size());
    FindLanes();
    FindDependencies();
    while (order_.size() < count_) {
      AddSegment(NextLane());
    }
    if (!std::is_sorted(order_.begin(), order_.end())) {
      Permute(first_, order_, out_);
    }
    return {.first_segment = first_segment,
            .segment_count = static_cast<uint32_t>(out_.segments.size()) - first_segment};
  }

 private:
  struct LaneState {
    std::vector<uint32_t> steps;  // In the plan's order.
    size_t next = 0;
    bool is_inline = false;
    uint32_t last_segment = kNone;
    std::vector<uint32_t> waited;  // Indexed by lane: the latest segment that this lane has waited for.
  };

  void FindLanes() {
    lane_of_.resize(count_);
    for (uint32_t i = 0; i < count_; ++i) {
      const Step& step = out_.steps[first_ + i];
      lane_of_[i] = static_cast<uint32_t>(step.device * kLanes + static_cast<size_t>(step.lane));
      lanes_[lane_of_[i]].steps.push_back(i);
    }
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      const DeviceFacts& device = input_.devices[lane / kLanes];
      lanes_[lane].is_inline = device.space == kHostSpace && !device.is_gpu && device.tier != Tier::kEmulated;
      if (!lanes_[lane].steps.empty()) {
        used_lanes_.push_back(lane);
      }
    }
    for (const uint32_t lane : used_lanes_) {
      lanes_[lane].waited.assign(lanes_.size(), kNone);
    }
  }

  // Finds for each step, in each other lane, the latest step that must come before it.
  void FindDependencies() {
    ConflictMap conflicts(&lane_of_);
    std::vector<uint32_t> earlier;
    std::vector<uint32_t> latest(lanes_.size(), kNone);
    first_dependency_.resize(count_ + 1);
    std::vector<bool> has_successor(count_);
    // With one lane there are no such steps.
    for (uint32_t i = 0; i < count_ && used_lanes_.size() > 1; ++i) {
      earlier.clear();
      for (uint32_t t = out_.first_touch[first_ + i]; t < out_.first_touch[first_ + i + 1]; ++t) {
        const Touch& touch = out_.touches[t];
        if (out_.storages[touch.storage.index].kind != Storage::Kind::kInput || touch.writes) {
          const MemoryRange place = Locate(out_, touch);
          conflicts.Access(place.memory, place.range, touch.writes, i, earlier);
        }
      }
      for (const uint32_t step : earlier) {
        if (lane_of_[step] != lane_of_[i]) {
          uint32_t& last = latest[lane_of_[step]];
          last = last == kNone ? step : std::max(last, step);
        }
      }
      first_dependency_[i] = static_cast<uint32_t>(dependencies_.size());
      for (const uint32_t lane : used_lanes_) {
        if (latest[lane] != kNone) {
          dependencies_.push_back(latest[lane]);
          has_successor[latest[lane]] = true;
          latest[lane] = kNone;
        }
      }
    }
    first_dependency_[count_] = static_cast<uint32_t>(dependencies_.size());
    segment_of_.assign(count_, kNone);
    FindTimes(has_successor);
  }

  // Finds how long each step takes, and how much work of other lanes it releases: for a copy for which no lane waits,
  // its own time; otherwise without limit. Small copies of the caller's memory are batched; a copy that another device
  // needs is worth its own submission.
  void FindTimes(const std::vector<bool>& has_successor) {
    time_.resize(count_);
    awaited_.assign(count_, Duration(0));
    for (uint32_t i = 0; i < count_; ++i) {
      const Step& step = out_.steps[first_ + i];
      const bool is_apart = step.kind == Step::Kind::kCopy && step.lane != Lane::kCompute;
      const bool is_first = is_apart && first_dependency_[i] == first_dependency_[i + 1];
      const bool is_last = is_apart && !has_successor[i];
      const bool is_small = (is_first || is_last) && step.bytes <= kSmallCopyBytes;
      time_[i] = is_small ? kSmallCopyTime : PlannedTime(step, input_.tasks);
      const Duration time = is_last ? time_[i] : kEndless;
      for (uint32_t d = first_dependency_[i]; d < first_dependency_[i + 1]; ++d) {
        Duration& awaited = awaited_[dependencies_[d]];
        awaited = std::min(awaited + time, kEndless);
      }
    }
  }

  bool IsReady(uint32_t step) const {
    for (uint32_t d = first_dependency_[step]; d < first_dependency_[step + 1]; ++d) {
      if (segment_of_[dependencies_[d]] == kNone) {
        return false;
      }
    }
    return true;
  }

  // Returns, among the lanes that can proceed, the one whose step is first in the plan; lanes that only queue come
  // first.
  uint32_t NextLane() const {
    uint32_t best = kNone;
    for (const uint32_t lane : used_lanes_) {
      const LaneState& state = lanes_[lane];
      if (state.next == state.steps.size() || !IsReady(state.steps[state.next])) {
        continue;
      }
      if (best == kNone || std::pair(state.is_inline, state.steps[state.next]) <
                               std::pair(lanes_[best].is_inline, lanes_[best].steps[lanes_[best].next])) {
        best = lane;
      }
    }
    HPVMD_CHECK(best != kNone && "The plan's order is an order of execution.");
    return best;
  }

  // Returns true when the step makes its segment wait for a segment for which its lane has not waited.
  bool AddsWait(const LaneState& lane, uint32_t step) const {
    for (uint32_t d = first_dependency_[step]; d < first_dependency_[step + 1]; ++d) {
      const uint32_t waited = lane.waited[lane_of_[dependencies_[d]]];
      if (waited == kNone || waited < segment_of_[dependencies_[d]]) {
        return true;
      }
    }
    return false;
  }

  void AddSegment(uint32_t lane) {
    LaneState& state = lanes_[lane];
    const uint32_t index = static_cast<uint32_t>(out_.segments.size());
    const Duration grain = state.is_inline ? kInlineGrain : kDriverGrain;
    Segment segment{.device = static_cast<DeviceIndex>(lane / kLanes),
                    .lane = static_cast<Lane>(lane % kLanes),
                    .first_step = first_ + static_cast<uint32_t>(order_.size()),
                    .first_wait = static_cast<uint32_t>(out_.waits.size())};
    if (state.last_segment != kNone) {
      out_.waits.push_back({state.last_segment});
    }
    const size_t first_other = out_.waits.size();
    Duration work{0}, awaited{0};
    for (; state.next < state.steps.size(); ++state.next) {
      const uint32_t step = state.steps[state.next];
      const bool is_late = out_.steps[first_ + step].has_late_extent;
      const bool must_cut = is_late || !IsReady(step);
      const Duration time = time_[step];
      const bool is_awaited = awaited >= grain;
      const bool is_kept_waiting = is_awaited && !state.is_inline && time >= kLongGrains * grain;
      const bool may_cut = is_kept_waiting || (work >= grain && (is_awaited || AddsWait(state, step)));
      if (segment.step_count > 0 && (must_cut || may_cut)) {
        break;
      }
      for (uint32_t d = first_dependency_[step]; d < first_dependency_[step + 1]; ++d) {
        WaitFor(state, segment_of_[dependencies_[d]], lane_of_[dependencies_[d]], first_other);
      }
      segment_of_[step] = index;
      order_.push_back(step);
      ++segment.step_count;
      awaited = std::min(awaited + awaited_[step], kEndless);
      work += time;
    }
    segment.wait_count = static_cast<uint32_t>(out_.waits.size()) - segment.first_wait;
    state.last_segment = index;
    out_.segments.push_back(segment);
  }

  void WaitFor(LaneState& state, uint32_t segment, uint32_t lane, size_t first_other) {
    uint32_t& waited = state.waited[lane];
    if (waited != kNone && waited >= segment) {
      return;
    }
    waited = segment;
    for (size_t w = first_other; w < out_.waits.size(); ++w) {
      const Segment& other = out_.segments[out_.waits[w].segment];
      if (other.device * kLanes + static_cast<size_t>(other.lane) == lane) {
        out_.waits[w].segment = segment;
        return;
      }
    }
    out_.waits.push_back({segment});
  }

  const ResidencyInput& input_;
  const uint32_t first_, count_;
  Residency& out_;
  std::vector<LaneState> lanes_;  // Indexed by device and lane.
  std::vector<uint32_t> used_lanes_;
  // Indexed by step, counted from first_.
  std::vector<uint32_t> lane_of_, segment_of_, first_dependency_;
  std::vector<uint32_t> dependencies_;
  std::vector<Duration> time_, awaited_;
  std::vector<uint32_t> order_;  // Steps in the order in which they were put into segments.
};

}  // namespace

StepRange CutSegments(const ResidencyInput& input, uint32_t first, uint32_t count, Residency& residency) {
  HoistDownloads(input, first, count, residency);
  return Cutter(input, first, count, residency).Run();
}

}  // namespace hpvm::scheduler
