// SPDX-License-Identifier: Apache-2.0
// Execution is one unit of work of a tenant, from its receipt to its result: the preparation of a graph for a client,
// a Run, an item of a stream, or a job.
//
//   a graph:  kPreparing --> kDone
//   a run:    kPreparing --> kQueued --> kReady --> kSent --> kDone
//
//                turn            recorded          read           ready        answered
//   a job:  kWaiting --> kQueued --> kStarting --> kReading --> kReady --> kSent --> kAnswered --> kStoring --> kEnding
//             ^  |          |                                                                                    |  |
//             |  +----------+--> kEnding (cancelled, expired, a dependency failed)                        (again)|  |
//             +--------------------------------------------------------------------------------------------------+ +-->
//             kDone
//
// A job's execution begins when the job is on disk; until then the job belongs to its submission. At most one write of
// a job is in flight, and its row is always what is on disk; any event that comes during a write (a cancel, the
// deadline, the executor's answer) is noted and handled when the write has been answered.
#ifndef HPVMD_SERVER_CORE_STATE_EXECUTION_H_
#define HPVMD_SERVER_CORE_STATE_EXECUTION_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/core/state/job_events.h"
#include "server/core/state/monitor.h"
#include "server/core/state/run_outcome.h"
#include "server/core/state/tenant.h"
#include "server/events/events.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {

// OutputPlan is the destination of an output.
struct OutputPlan {
  enum class Kind : uint8_t { kAuto, kBuffer, kNewBuffer, kDiscard } kind = Kind::kAuto;
  std::string buffer_id;  // Used by kBuffer.
  uint64_t buffer_bytes = 0;
  // Memory that is sent with the run; kAuto and kNewBuffer get it when the output's size is known.
  SegmentRef segment;
  uint64_t segment_bytes = 0;
};

// Sending is one passage through an executor, of a run or of a graph that is prepared for all callers that wait for
// it. Each attempt of a job has a Sending of its own, so that a late answer for one attempt reaches no other. Guarded
// by the core's mutex, except `input` and `plans` while the sender sends them, when no other thread accesses them.
struct Sending {
  supervisor::RunInput input;               // Its spans borrow the caller's request, or the job's.
  std::vector<SegmentRef> pins;             // Memory of the inputs.
  std::map<std::string, OutputPlan> plans;  // Outputs without an entry are kAuto.
  std::vector<TensorShape> input_shapes;
  scheduler::Lease host_bytes;  // Host memory of the inline inputs.
  uint64_t devices = 0;         // Bit set of the fair share's devices; 0: not known yet.
  Time sent{0};
  std::shared_ptr<supervisor::ExecutorProcess> port;  // Set while the executor has the run.
  uint64_t epoch = 0;
  // Ids of the requests, 0 until known, for Cancel: the sender writes them, and reads `stop`, without the mutex.
  static constexpr uint32_t kRequestsMax = 3;
  std::array<std::atomic<supervisor::RequestId>, kRequestsMax> requests{};
  uint32_t count = 0;             // Number of `requests` used.
  bool asked_for_memory = false;  // Other tenants were asked once for memory of a device.
  std::atomic<bool> stop{false};
  Status stop_reason;  // Status with which the run ends when `stop` is set, unless it succeeds first.
  std::vector<std::pair<Time, uint64_t>> timers;

  // The sender calls it with the id of the request, or 0. The mutex is not held.
  void OnSent(supervisor::ExecutorProcess& to, uint32_t at, supervisor::RequestId id) {
    requests[at].store(id);
    if (stop.load() && id != 0) {  // Stop sets `stop` and then reads `requests`, so one of the two sees the other.
      to.Cancel(id);
    }
  }
  // Cancels every request of `sending` that the executor has or will get.
  static void Stop(CoreScope& scope, const std::shared_ptr<Sending>& sending, Status why) {
    sending->stop_reason = std::move(why);
    sending->stop.store(true);
    if (sending->port != nullptr) {
      scope.Defer([sending, port = sending->port] {
        for (const std::atomic<supervisor::RequestId>& request : sending->requests) {
          if (const supervisor::RequestId id = request.load(); id != 0) {
            port->Cancel(id);
          }
        }
      });
    }
  }
};

// JobAttempt is one attempt of a job, from the commit of RUNNING until the commit of its end.
struct JobAttempt {
  std::shared_ptr<StoredRequest> request;  // The attempt's bindings borrow from it.
  std::shared_ptr<RunOutcome> outcome;     // Set when the run has ended; shared with blobs that are being stored.
  v1::Job ended;                           // Outputs, as the job will show them.
  StoredResults results;                   // Outputs with their bytes, except large ones:
  std::vector<BlobInput> blobs;
  std::vector<int> blob_results;  // Index in results.outputs of each blob.
  std::vector<BlobPinRef> pins;   // Pins of blobs that no row names yet.
  std::vector<internal::StoredBlob> stored_blobs;
  scheduler::Lease disk_bytes;                     // Disk space for outputs and log.
  bool broken_off = false;                         // The daemon stops the attempt, which then does not count.
  std::pair<Time, uint64_t> run_timer{kNever, 0};  // Timer for the limit of the run's time.
  Status over;                                     // OK, or the error that the run exceeded its limit.
};

// HoldCommand is a request to hold a job or to release it.
struct HoldCommand {
  bool held = false;
  v1::JobHold hold;  // The requester, the reason, and the time since which the job is held.
  // Called with the mutex held, before `then`, unless the job already was in that state.
  std::function<void()> changed;
  std::function<void(CoreScope&, const Status&)> then;
};

// JobPart holds the members that only an Execution of a stored job has.
struct JobPart {
  StoredJob row;
  // For an element of an array, the fields that it shares with the other elements (SharedOf), which `row` then lacks:
  // there may be a thousand elements with 8 KiB each, which every change would copy several times. Null: `row` is
  // complete.
  std::shared_ptr<const StoredJob> shared;
  bool writing = false;          // A write of `row` is in flight.
  bool restored = false;         // An earlier daemon accepted the job: the buffers that it names are gone.
  bool cancel_asked = false;     // A cancellation to be honoured at the next step.
  bool is_late = false;          // The job's deadline has passed.
  Status damage;                 // OK, or why the job cannot run (again).
  bool awaits_room = false;      // The disk had no room for the outputs; they are written again.
  bool has_turn = false;         // The fair share counts the job as running.
  bool has_array_turn = false;   // The array counts the job against its limit.
  bool counted_running = false;  // The job is counted among those that run.
  // Why the last attempt was lost, if it was.
  events::LostCause lost_cause = events::LostCause::kExecutor;
  scheduler::Lease queued;                             // Held while the job waits (limits of jobs.queued_*).
  std::optional<v1::JobDependency> failed_dependency;  // A dependency that can no longer be met.
  Time not_before{0};                                  // End of the back-off.
  bool awaits_executor = false;  // The last turn came while no executor of the tenant was allowed to start.
  Duration again_after{0};       // Back-off before the next attempt, while the job is being put back.
  std::pair<Time, uint64_t> wait_timer{kNever, 0};
  // Time since which the job could start, as its limit of waiting counts; kNever: it cannot.
  Time could_start = kNever;
  std::pair<Time, uint64_t> limit_timer{kNever, 0};  // Timer for that limit.
  bool waited_too_long = false;
  std::unique_ptr<JobAttempt> attempt;  // Set from kReading on.
  std::shared_ptr<JobEvents> events;    // Set from the first watcher or attempt on.
  uint64_t change = 0;                  // Number of the last change in the tenant's history; 0: none.
  // State at the last change, whether kept or not; unspecified: the job is new.
  v1::JobState told = v1::JOB_STATE_UNSPECIFIED;
  // Called when the request to cancel is on disk or the job has ended, whichever comes first.
  std::vector<std::function<void(CoreScope&, const Status&)>> cancel_waiters;
  std::deque<HoldCommand>
      hold_commands;  // In order of arrival; the first may be in the process of being written to disk.
};

// Guarded by the core's mutex.
struct Execution {
  enum class Phase : uint8_t {
    kPreparing,  // Waits for its graph to be prepared.
    // A job waits for dependencies, the release of a hold, a back-off, its array's turn, or the end of the daemon.
    kWaiting,
    kQueued,    // Waits in the fair share's queue.
    kStarting,  // A job has its turn; RUNNING is being written. Nothing was sent.
    kReading,   // A job's request is being read from the store.
    kReady,     // Has its turn, and waits for the executor and for its graph there.
    kSent,      // The executor has it.
    kAnswered,  // A job's passage through the executor has ended.
    kStoring,   // A job's outputs are being made durable.
    kEnding,    // A terminal state, or ACCEPTED again, is being written.
    kDone,      // Ended or abandoned.
  };

  Phase phase = Phase::kPreparing;
  scheduler::JobKey key = 0;  // Key in the fair share; a job has a new one each time that it is queued.
  TenantRef tenant;
  PreparationRef preparation;  // Set for a job during an attempt only.
  std::string traceparent;     // A run's trace parent; a job's is in its row.
  int32_t priority = 0;
  Time received{0}, deadline = kNever;
  std::pair<Time, uint64_t> deadline_timer{kNever, 0};
  scheduler::Lease running;          // Held while the execution has its turn.
  std::shared_ptr<Sending> sending;  // Set until the executor has answered, or until the execution was stopped before.
  std::function<void(RunOutcome)> done;  // Receives the run's outcome; called once, without the mutex.
  std::unique_ptr<JobPart> stored;       // Null for a run.

  // The job as it is on disk; an element of an array lacks the fields of JobPart::shared.
  const v1::Job& shown() const { return stored->row.job(); }
  // Returns the job's dependencies.
  const auto& after() const { return (stored->shared != nullptr ? *stored->shared : stored->row).job().after(); }
  // Returns true when the execution still is in phase `where` of the turn `then`, not in the same phase of a later
  // turn.
  bool StandsAt(scheduler::JobKey then, Phase where) const { return key == then && phase == where; }
};
using ExecutionRef = std::shared_ptr<Execution>;

// Creates the Execution of a job that is on disk or is being written.
inline ExecutionRef NewJob(TenantRef tenant, StoredJob row) {
  auto job = std::make_shared<Execution>();
  job->phase = Execution::Phase::kWaiting;
  job->tenant = std::move(tenant);
  job->priority = row.job().priority();
  job->stored = std::make_unique<JobPart>();
  job->stored->row = std::move(row);
  return job;
}

// LiveArray is an array of which at least one element has not ended.
struct LiveArray {
  uint32_t running_max = 0;                  // Limit on `turns`; 0: no limit.
  uint32_t turns = 0;                        // Number of elements that are queued or run.
  std::map<uint64_t, ExecutionRef> waiting;  // Elements that wait for a turn, by sequence.
  std::map<uint64_t, ExecutionRef> live;     // Elements that have not ended, by sequence.
  uint64_t joining = 0;                      // Number of elements on disk that are about to be added to `live`.
  uint64_t succeeded = 0, failed = 0;        // Numbers of elements that have ended.
  uint64_t missing = 0;                      // Number of elements that are stored no longer; how they ended is unknown.
  uint64_t given_up = 0;                     // Number of elements whose rows differ from what the core knew.
  std::string unreadable;  // Why the store could not tell how the other elements ended; empty when it could.
  UnitState State() const { return {live.size() + joining + given_up, succeeded, failed}; }
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_EXECUTION_H_
