// SPDX-License-Identifier: Apache-2.0
// What the daemon holds of a job that has not ended, beside its row in the store.
//
//            turn            recorded          read            answered
//   kWaiting --> kQueued --> kStarting --> kReading --> kRunning --> kStoring --> kEnding --> gone
//     ^  |          |                                                               |
//     |  +----------+--> kEnding (cancelled, expired, a dependency failed)          |
//     +-----------------------------------------------------------------------------+  (again)
//
// It begins when it is on disk; until then it belongs to its submission.
//
// At most one write of a job is in flight, and `row` is always what is on disk; whatever comes meanwhile (a cancel, the
// deadline, the executor's answer) is noted and looked at when the write has been answered.
#ifndef HPVMD_SERVER_CORE_STATE_LIVE_JOB_H_
#define HPVMD_SERVER_CORE_STATE_LIVE_JOB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/core/state/job_events.h"
#include "server/core/state/outcome.h"
#include "server/core/state/run_op.h"
#include "server/core/state/tenant.h"
#include "server/events/events.h"
#include "server/jobs/job_store.h"

namespace hpvm {

// A job's one attempt, from the commit of RUNNING until its end is committed.
struct JobAttempt {
  std::shared_ptr<RunOp> op;               // While it is on its way through the executor.
  std::shared_ptr<StoredRequest> request;  // What op's spans borrow.
  std::shared_ptr<RunOutcome> outcome;     // It has ended; shared with blobs that are being stored.
  v1::Job ended;                           // Outputs, as the job will show them.
  StoredResults results;                   // Outputs with their bytes, but for the large ones:
  std::vector<BlobInput> blobs;
  std::vector<int> blob_results;  // Which of results.outputs each blob is.
  std::vector<BlobPinRef> pins;   // Of blobs that no row names yet.
  std::vector<internal::StoredBlob> stored_blobs;
  scheduler::Lease disk_bytes;  // For outputs and log.
  bool broken_off = false;      // The daemon stops it: it does not count.
};

struct LiveJob {
  enum class Phase : uint8_t {
    kWaiting,   // For dependencies, a back-off, its array's turn, or the end of the daemon.
    kQueued,    // In the fair share's queue.
    kStarting,  // It has a turn; RUNNING is being written. Nothing was sent.
    kReading,   // Its request comes back from the store.
    kRunning,   // With the executor.
    kStoring,   // Its outputs are being made durable.
    kEnding,    // A terminal state, or ACCEPTED again, is being written.
    kGone,      // Ended, or given up.
  };

  TenantRef tenant;
  StoredJob row;
  Phase phase = Phase::kWaiting;
  bool writing = false;                                // A write of `row` is in flight.
  bool restored = false;                               // From an earlier daemon: the buffers that it names are gone.
  bool cancel_asked = false;                           // To be honoured at the next step.
  bool is_late = false;                                // Its deadline has passed.
  Status damage;                                       // OK, or why it cannot run (again).
  bool awaits_room = false;                            // The disk had no room for its outputs; they are put again.
  bool has_turn = false;                               // The fair share counts it as running.
  bool has_array_turn = false;                         // Its array counts it.
  // Why the last attempt was lost, if it was.
  events::LostCause lost_cause = events::LostCause::kExecutor;
  bool counted_running = false;                        // Among those that run.
  scheduler::Lease queued;                             // While it waits (limits of jobs.queued_*).
  scheduler::Lease running;                            // While it has a turn.
  std::optional<v1::JobDependency> failed_dependency;  // It can no longer come true.
  uint64_t key = 0;                                    // For the fair share.
  Time received{0};                                    // When it came, for its timing.
  Time deadline = kNever;
  Time not_before{0};            // A back-off.
  bool awaits_executor = false;  // Its last turn came while no executor of the tenant might start.
  Duration again_after{0};       // While it is being put back: the next one.
  std::pair<Time, uint64_t> deadline_timer{kNever, 0}, wait_timer{kNever, 0};
  std::unique_ptr<JobAttempt> attempt;  // From kReading on.
  std::shared_ptr<JobEvents> events;    // From the first watcher or attempt on.
  // Called when the wish to cancel is on disk or the job has ended, whichever comes first.
  std::vector<std::function<void(CoreScope&, const Status&)>> cancel_waiters;
};
using LiveJobRef = std::shared_ptr<LiveJob>;

// An array of which at least one element has not ended.
struct LiveArray {
  uint32_t running_max = 0;                // 0: no limit.
  uint32_t turns = 0;                      // Elements that are queued or run.
  std::map<uint64_t, LiveJobRef> waiting;  // For a turn, by sequence.
  std::map<uint64_t, LiveJobRef> live;     // By sequence.
  uint64_t joining = 0;                    // Elements that are on disk and about to be among them.
  uint64_t succeeded = 0, failed = 0;      // Elements that have ended.
  uint64_t missing = 0;                    // That are stored no longer: nobody knows how they ended.
  uint64_t given_up = 0;                   // Whose rows are not what the core knew.
  std::string unreadable;                  // Why the store could not say how the others ended; empty: it did.
  UnitState State() const { return {live.size() + joining + given_up, succeeded, failed}; }
};

// An ended job whose events are still in memory.
struct RecentJob {
  std::shared_ptr<JobEvents> events;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_CORE_STATE_LIVE_JOB_H_
