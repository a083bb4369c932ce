// SPDX-License-Identifier: Apache-2.0
// Submits a plan's stages to its devices.
//
// Segments for devices that only queue are submitted ahead, in plan order and as far as a window allows: they wait
// for points on timelines, which other work reaches later. Segments for devices that run on the submitting thread run
// here, in plan order, when their waits are reached. A segment whose extents are known only when it starts
// (PlanSegment::late) is submitted once they can be read.
//
// A pass of a stage begins, on every queue, when all of the previous pass has ended; the host waits for that only
// when it has work to do. A pass may therefore be submitted while the previous one still runs: memory that the host
// writes between passes, and memory that the passes write for the host, must then be separate for each pass.
//
// After a failure all submitted work has ended: nothing accesses the caller's memory any more.
#ifndef HPVMD_ENGINE_RUN_RUN_STAGE_H_
#define HPVMD_ENGINE_RUN_RUN_STAGE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/plan.h"
#include "engine/run/crash_note.h"
#include "scheduler/placement/remainder.h"

namespace hpvm::engine {

struct StageOptions {
  Hub& hub;
  const Clock& clock;
  const std::atomic<uint32_t>& stop;  // A nonzero value means that the run is cancelled, or its deadline has passed.
  Time deadline = kNever;
  LaunchLog* log = nullptr;
  bool check = false;
  Duration device_time_max{0};  // This and the next member are RunRequest's.
  bool* over_device_time = nullptr;
};

// Returns kDeadlineExceeded, kCancelled, or OK.
Status CheckTime(const StageOptions& options);

// The data of one pass of a stage; borrowed until the pass has ended.
struct StagePass {
  const PlanStage* stage = nullptr;
  std::span<const std::vector<Buffer*>> buffers;  // Indexed by device, then by slot.
  std::span<NodeTiming> timings;                  // Indexed by task.
};

// The first failure of a run, in plan order.
struct StageFailure {
  Status status;
  const PlanSegment* segment = nullptr;  // Null when no segment was to blame (a stop, the deadline).
  Failure failure;                       // The device's report.
  uint64_t pass = 0;                     // The first pass that did not run to its end, counted from 0.
};

class StageRunner {
 public:
  // Limit on the submissions of one queue that have not ended.
  static constexpr uint32_t kWindow = 32;
  // Limit on the passes that have not ended when another begins; callers with more passes call Finish in between.
  static constexpr uint64_t kPassesMax = 2;

  // All arguments are borrowed. The plan's timelines have reached PlanQueue::base.
  StageRunner(const StageOptions& options, Plan& plan);
  // All work must have ended: Finish has returned, or something failed.
  ~StageRunner() = default;
  StageRunner(const StageRunner&) = delete;
  StageRunner& operator=(const StageRunner&) = delete;

  // Submits the whole pass; segments that run on this thread have ended when it returns.
  Status Run(const StagePass& pass);
  // Waits until the first `passes` passes have ended.
  Status Finish(uint64_t passes);
  Status Finish() { return Finish(passes_); }

  uint64_t passes() const { return passes_; }
  // Returns true when any device runs asynchronously to this thread.
  bool has_drivers() const { return has_drivers_; }
  // Valid after a failure.
  const StageFailure& failure() const { return failure_; }
  // Valid after a failure: the state of each segment of the pass in which it happened.
  std::vector<scheduler::SegmentState> States() const;

 private:
  static constexpr uint64_t kRemembered = kPassesMax + 1;
  struct Flight {
    const PlanSegment* segment = nullptr;
    uint64_t pass = 0;
    std::vector<TimelinePoint> waits;
    TimelinePoint signal;
    Failure failure;
    CommandList patched;  // For segments with late extents.
  };
  struct Queue {
    PlanQueue* plan = nullptr;
    Device* device = nullptr;
    bool runs_inline = false;
    bool is_fresh = false;                       // Nothing of this pass has been submitted yet.
    uint64_t submitted = 0;                      // The value that its last submission signals.
    std::array<uint64_t, kRemembered> begins{};  // For the last passes: the timeline's value at the beginning.
    std::array<uint64_t, kRemembered> ends{};    // For the last passes: the timeline's value at the end.
    std::vector<std::unique_ptr<Flight>> ring;   // At most kWindow.
    uint32_t first = 0, count = 0;
  };

  Status RunSegments(const StagePass& pass);
  Status SubmitAhead(const StagePass& pass);
  Status SubmitQueued(const PlanSegment& segment, Queue& queue, const StagePass& pass, bool* is_blocked);
  Status RunHere(const PlanSegment& segment, const StagePass& pass);
  Status Submit(const PlanSegment& segment, const CommandList& commands, Queue& queue, const StagePass& pass,
                Flight& flight);
  Status FindWaits(const PlanSegment& segment, const Queue& queue, std::vector<TimelinePoint>* waits) const;
  Status Await(std::span<const TimelinePoint> points);
  Status PatchExtents(const PlanSegment& segment, const StagePass& pass, Flight& flight);
  Status Retire(Queue& queue);
  Flight& NextFlight(Queue& queue);
  void AddNote(const PlanSegment& segment);
  Status Abandon(Status status);
  void FindCause(Status status);
  Status Blame(const PlanSegment& segment, const Failure& failure, Status status);

  const StageOptions options_;
  Plan& plan_;
  std::vector<Queue> queues_;
  bool has_drivers_ = false;
  std::atomic<uint32_t> stop_drivers_{0};  // For devices that run asynchronously to this thread; also set when
                                           // something fails.
  std::span<const PlanSegment> segments_;  // Segments of the pass.
  size_t next_ = 0;                        // The next segment to submit ahead.
  std::optional<TimelinePoint> blocked_;   // A point that must be reached before that.
  uint64_t passes_ = 0;
  std::array<const PlanStage*, kRemembered> stages_{};  // Stages of the last passes.
  Flight here_;
  StageFailure failure_;
  bool has_blame_ = false;  // failure_.segment failed on this thread.
  CrashNote note_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_STAGE_H_
