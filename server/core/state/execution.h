// SPDX-License-Identifier: Apache-2.0
// One thing of a tenant that runs, from its receipt to its result: the preparing of a graph for a client, a Run, an
// item of a stream, or a job.
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
// A job begins when it is on disk; until then it belongs to its submission. At most one write of a job is in flight,
// and its row is always what is on disk; whatever comes meanwhile (a cancel, the deadline, the executor's answer) is
// noted and looked at when the write has been answered.
#ifndef HPVMD_SERVER_CORE_STATE_EXECUTION_H_
#define HPVMD_SERVER_CORE_STATE_EXECUTION_H_

#include <array>
#include <atomic>
#include <cstdint>
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

// Where an output goes.
struct OutputPlan {
  enum class Kind : uint8_t { kAuto, kBuffer, kNewBuffer, kDiscard } kind = Kind::kAuto;
  std::string buffer_id;  // kBuffer.
  uint64_t buffer_bytes = 0;
  // Memory that travels with the run; kAuto and kNewBuffer get it when the output's size is known.
  SegmentRef segment;
  uint64_t segment_bytes = 0;
};

// One way through an executor, of a run or of a graph that is prepared for all who wait for it. A job's next attempt
// has another, so that what comes late for one reaches no other. Guarded by the core's mutex, except `input` and
// `plans` while they are being sent, when nobody else touches them.
struct Sending {
  supervisor::RunInput input;               // Spans borrow the caller's request, or the job's.
  std::vector<SegmentRef> pins;             // Memory of the inputs.
  std::map<std::string, OutputPlan> plans;  // Outputs that are not here are kAuto.
  std::vector<TensorShape> input_shapes;
  scheduler::Lease host_bytes;  // Of inline inputs.
  uint64_t devices = 0;         // Of the fair share, by bit; 0: not known yet.
  Time sent{0};
  std::shared_ptr<supervisor::ExecutorProcess> port;  // While the executor has it.
  uint64_t epoch = 0;
  // Each request, 0 until known, for Cancel: written by the sender without the mutex, as `stop` is read by it.
  static constexpr uint32_t kRequestsMax = 3;
  std::array<std::atomic<supervisor::RequestId>, kRequestsMax> requests{};
  uint32_t count = 0;             // Of requests.
  bool asked_for_memory = false;  // Of a device, of other tenants. Once.
  std::atomic<bool> stop{false};
  Status stop_reason;  // When `stop`: what it ends with unless it succeeds first.
  std::vector<std::pair<Time, uint64_t>> timers;

  // The sender knows the request, or 0. Without the mutex.
  void OnSent(supervisor::ExecutorProcess& to, uint32_t at, supervisor::RequestId id) {
    requests[at].store(id);
    if (stop.load() && id != 0) {  // Stop sets it and then looks at requests; one of the two sees the other.
      to.Cancel(id);
    }
  }
  // What the executor has of it, or gets, is to end.
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

// A job's one attempt, from the commit of RUNNING until its end is committed.
struct JobAttempt {
  std::shared_ptr<StoredRequest> request;  // What is bound borrows from it.
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

// What only that has which is on disk.
struct JobPart {
  StoredJob row;
  // An array's element has here what it shares with the others (SharedOf), without which `row` is then: they may be a
  // thousand with 8 KiB each, which every change would copy several times. Null: `row` is whole.
  std::shared_ptr<const StoredJob> shared;
  bool writing = false;          // A write of `row` is in flight.
  bool restored = false;         // From an earlier daemon: the buffers that it names are gone.
  bool cancel_asked = false;     // To be honoured at the next step.
  bool is_late = false;          // Its deadline has passed.
  Status damage;                 // OK, or why it cannot run (again).
  bool awaits_room = false;      // The disk had no room for its outputs; they are put again.
  bool has_turn = false;         // The fair share counts it as running.
  bool has_array_turn = false;   // Its array counts it.
  bool counted_running = false;  // Among those that run.
  // Why the last attempt was lost, if it was.
  events::LostCause lost_cause = events::LostCause::kExecutor;
  scheduler::Lease queued;                             // While it waits (limits of jobs.queued_*).
  std::optional<v1::JobDependency> failed_dependency;  // It can no longer come true.
  Time not_before{0};                                  // A back-off.
  bool awaits_executor = false;  // Its last turn came while no executor of the tenant might start.
  Duration again_after{0};       // While it is being put back: the next one.
  std::pair<Time, uint64_t> wait_timer{kNever, 0};
  std::unique_ptr<JobAttempt> attempt;            // From kReading on.
  std::shared_ptr<JobEvents> events;              // From the first watcher or attempt on.
  uint64_t change = 0;                            // The last one's number in the tenant's history; 0: there is none.
  v1::JobState told = v1::JOB_STATE_UNSPECIFIED;  // Its state at the last change, kept or not; none: it is new.
  // Called when the wish to cancel is on disk or the job has ended, whichever comes first.
  std::vector<std::function<void(CoreScope&, const Status&)>> cancel_waiters;
};

// Guarded by the core's mutex.
struct Execution {
  enum class Phase : uint8_t {
    kPreparing,  // It waits for its graph to be prepared.
    kWaiting,    // A job waits for dependencies, a back-off, its array's turn, or the end of the daemon.
    kQueued,     // In the fair share's queue.
    kStarting,   // A job has a turn; RUNNING is being written. Nothing was sent.
    kReading,    // A job's request comes back from the store.
    kReady,      // It has its turn, and waits for the executor and for its graph in that.
    kSent,       // With the executor.
    kAnswered,   // A job's way through the executor has ended.
    kStoring,    // A job's outputs are being made durable.
    kEnding,     // A terminal state, or ACCEPTED again, is being written.
    kDone,       // Ended, or given up.
  };

  Phase phase = Phase::kPreparing;
  scheduler::JobKey key = 0;  // For the fair share; a job has a new one each time that it is queued.
  TenantRef tenant;
  PreparationRef preparation;  // A job's, during an attempt.
  std::string traceparent;     // A run's; a job's row has it.
  int32_t priority = 0;
  Time received{0}, deadline = kNever;
  std::pair<Time, uint64_t> deadline_timer{kNever, 0};
  scheduler::Lease running;              // While it has a turn.
  std::shared_ptr<Sending> sending;      // Until it comes back from the executor, or was stopped before.
  std::function<void(RunOutcome)> done;  // Of the same; once, without the mutex.
  std::unique_ptr<JobPart> stored;       // Null: a run.

  // A job's, as it is on disk; an array's element lacks what JobPart::shared has.
  const v1::Job& shown() const { return stored->row.job(); }
  // What a job comes after.
  const auto& after() const { return (stored->shared != nullptr ? *stored->shared : stored->row).job().after(); }
  // Whether it stands where it stood then, and not there again for a later turn.
  bool StandsAt(scheduler::JobKey then, Phase where) const { return key == then && phase == where; }
};
using ExecutionRef = std::shared_ptr<Execution>;

// One that is on disk, or is about to be.
inline ExecutionRef NewJob(TenantRef tenant, StoredJob row) {
  auto job = std::make_shared<Execution>();
  job->phase = Execution::Phase::kWaiting;
  job->tenant = std::move(tenant);
  job->priority = row.job().priority();
  job->stored = std::make_unique<JobPart>();
  job->stored->row = std::move(row);
  return job;
}

// An array of which at least one element has not ended.
struct LiveArray {
  uint32_t running_max = 0;                  // 0: no limit.
  uint32_t turns = 0;                        // Elements that are queued or run.
  std::map<uint64_t, ExecutionRef> waiting;  // For a turn, by sequence.
  std::map<uint64_t, ExecutionRef> live;     // By sequence.
  uint64_t joining = 0;                      // Elements that are on disk and about to be among them.
  uint64_t succeeded = 0, failed = 0;        // Elements that have ended.
  uint64_t missing = 0;                      // That are stored no longer: nobody knows how they ended.
  uint64_t given_up = 0;                     // Whose rows are not what the core knew.
  std::string unreadable;                    // Why the store could not say how the others ended; empty: it did.
  UnitState State() const { return {live.size() + joining + given_up, succeeded, failed}; }
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_EXECUTION_H_
