// SPDX-License-Identifier: Apache-2.0
// Submits a plan's stages to its devices.
//
// Segments of devices that only queue are submitted ahead, in plan order and as far as a window allows: what they wait
// for are points on timelines, which others reach when they get there. Segments of devices that run on the submitting
// thread run here, in plan order, when what they wait for is reached. A segment whose extents are known only when it
// starts (PlanSegment::late) is submitted once they can be read.
//
// A pass of a stage begins, on every queue, when all of the pass before it has ended; nobody waits on the host for that
// unless there is something for the host to do. So a pass may be submitted while the one before still runs: memory that
// the host writes between passes, and what the passes write for the host, must be another's then.
//
// After a failure everything that was submitted has ended: nothing touches the caller's memory any more.
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
#include "engine/run/run_note.h"
#include "scheduler/placement/remainder.h"

namespace hpvm::engine {

struct StageOptions {
  Hub& hub;
  const Clock& clock;
  const std::atomic<uint32_t>& stop;  // Not zero: the run is cancelled, or its deadline has passed.
  Time deadline = kNever;
  LaunchLog* log = nullptr;
  bool check = false;
};

// kDeadlineExceeded, kCancelled, or OK.
Status CheckTime(const StageOptions& options);

// What one pass of a stage works on; borrowed until it has ended.
struct StagePass {
  const PlanStage* stage = nullptr;
  std::span<const std::vector<Buffer*>> buffers;  // By device, by slot.
  std::span<NodeTiming> timings;                  // By task.
};

// Where a run failed first, in plan order.
struct StageFailure {
  Status status;
  const PlanSegment* segment = nullptr;  // Null: none was to blame (a stop, the deadline).
  Failure failure;                       // What the device said.
  uint64_t pass = 0;                     // The first that did not run to its end, counted from 0.
};

class StageRunner {
 public:
  // Submissions of one queue that have not ended.
  static constexpr uint32_t kWindow = 32;
  // Passes that have not ended when another begins; who runs more must call Finish in between.
  static constexpr uint64_t kPassesMax = 2;

  // All are borrowed. The plan's timelines have reached PlanQueue::base.
  StageRunner(const StageOptions& options, Plan& plan);
  // Everything must have ended: Finish has returned, or something failed.
  ~StageRunner() = default;
  StageRunner(const StageRunner&) = delete;
  StageRunner& operator=(const StageRunner&) = delete;

  // Submits all of it; segments that run on this thread have then ended.
  Status Run(const StagePass& pass);
  // Waits until the first `passes` of them have ended.
  Status Finish(uint64_t passes);
  Status Finish() { return Finish(passes_); }

  uint64_t passes() const { return passes_; }
  // Whether anything runs behind this thread's back.
  bool has_drivers() const { return has_drivers_; }
  // After a failure.
  const StageFailure& failure() const { return failure_; }
  // After a failure: what became of each segment of the pass in which it happened.
  std::vector<scheduler::SegmentState> States() const;

 private:
  static constexpr uint64_t kRemembered = kPassesMax + 1;
  struct Flight {
    const PlanSegment* segment = nullptr;
    uint64_t pass = 0;
    std::vector<TimelinePoint> waits;
    TimelinePoint signal;
    Failure failure;
    CommandList patched;  // Of segments with late extents.
  };
  struct Queue {
    PlanQueue* plan = nullptr;
    Device* device = nullptr;
    bool runs_inline = false;
    bool is_fresh = false;                       // Nothing of this pass was submitted yet.
    uint64_t submitted = 0;                      // What its last submission signals.
    std::array<uint64_t, kRemembered> begins{};  // Of the last passes: where the timeline was.
    std::array<uint64_t, kRemembered> ends{};    // And where it will be.
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
  std::atomic<uint32_t> stop_drivers_{0};  // For devices behind this thread's back: also set when something fails.
  std::span<const PlanSegment> segments_;  // Of the pass.
  size_t next_ = 0;                        // The next one to submit ahead.
  std::optional<TimelinePoint> blocked_;   // What has to be reached before that.
  uint64_t passes_ = 0;
  std::array<const PlanStage*, kRemembered> stages_{};  // Of the last passes.
  Flight here_;
  StageFailure failure_;
  bool has_blame_ = false;  // failure_.segment failed here.
  RunNote note_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_STAGE_H_
