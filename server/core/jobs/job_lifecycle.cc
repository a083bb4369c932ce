// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_lifecycle.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/core/state/bindings.h"
#include "server/core/state/iteration.h"
#include "server/jobs/rows/arrays.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr size_t kPlacementsMax = 1'000;
// A debt of device time is checked again after at most this time, because a limit may change, or the clock may be
// adjusted.
constexpr Duration kDebtLookAgain = std::chrono::minutes(1);
// Delay before a write is repeated that failed for want of room, or for a reason that may pass.
constexpr Duration kWriteAgain = std::chrono::seconds(1);

}  // namespace

// Sends the job's next row to the store; when it is on disk, it becomes the job's row, and `then` is called.
void JobLifecycle::ChangeRow(CoreScope& scope, const ExecutionRef& job, StoredJob next, bool with_results,
                             JobStep then) {
  if (shutdown_.closed) {
    return;  // The next daemon continues from the state on disk.
  }
  job->stored->writing = true;
  ChangeJob change;
  change.tenant = job->stored->row.tenant();
  change.id = job->shown().id();
  change.state = job->shown().state();
  change.attempt = job->shown().attempt();
  change.lease = job->stored->row.lease();
  change.job = next;
  if (with_results) {
    change.results = job->stored->attempt->results;
  }
  options_.jobs->Write(std::move(change),
                       [this, job, next = std::move(next), with_results, then](const WriteResult& result) {
                         OnChanged(job, next, with_results, then, result.status);
                       });
}

void JobLifecycle::OnChanged(const ExecutionRef& job, const StoredJob& next, bool with_results, JobStep then,
                             const Status& status) {
  CoreScope scope(monitor_);
  switch (status.code()) {
    case absl::StatusCode::kOk:
      job->stored->writing = false;
      job->stored->row = next;
      (this->*then)(scope, job);
      return;
    case absl::StatusCode::kDataLoss:
      // The state on disk is unknown until it is read again: the job stays as it is, and nothing is answered.
      LogError("Job not stored", {{"tenant", next.tenant()}, {"job", next.job().id()}, {"error", Message(status)}});
      AnswerCancels(scope, *job, Unavailable("The job store takes no writes: " + Message(status)));
      AnswerHolds(scope, *job, Unavailable("The job store takes no writes: " + Message(status)));
      return;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      monitor_.AddTimer(
          scope, options_.clock->Now() + kWriteAgain,
          [this, job, next, with_results, then](CoreScope& inner) { ChangeRow(inner, job, next, with_results, then); });
      return;
    default:
      job->stored->writing = false;
      GiveUp(scope, job, status);
      return;
  }
}

// Moves a waiting job to its next phase, if it can go on.
void JobLifecycle::Settle(CoreScope& scope, const ExecutionRef& job) {
  if (job->phase != Execution::Phase::kWaiting || job->stored->writing || job->stored->has_turn) {
    return;
  }
  WatchWait(scope, job);
  const Time now = options_.clock->Now();
  if (job->stored->cancel_asked) {
    EndJob(scope, job, v1::JOB_STATE_CANCELLED, Cancelled("The job was cancelled."));
  } else if (job->stored->is_late) {
    const bool was_tried = job->shown().attempt() > 0;
    EndJob(scope, job, was_tried ? v1::JOB_STATE_FAILED : v1::JOB_STATE_EXPIRED,
           DeadlineExceeded(was_tried                 ? "The job did not end within its deadline."
                            : job->shown().has_hold() ? "The job's deadline passed while it was held. " +
                                                            feed_.HoldSentence(job->shown().hold())
                                                      : "The job's deadline passed before it started."));
  } else if (job->stored->waited_too_long && job->shown().attempt() == 0) {
    EndJob(scope, job, v1::JOB_STATE_EXPIRED,
           DeadlineExceeded("The job waited for longer than its limit " +
                            LimitText(job->shown().limits().wait_ns(), job->stored->row.asked_limits().wait_ns(),
                                      "job-wait-seconds")));
  } else if (!job->stored->damage.ok()) {
    EndJob(scope, job, v1::JOB_STATE_FAILED, job->stored->damage);
  } else if (job->stored->failed_dependency.has_value()) {
    Outcome never = FailedPrecondition(NeverSentence(*job->stored->failed_dependency));
    never.detail.emplace().set_job_id(job->stored->failed_dependency->job_id());
    EndJob(scope, job, v1::JOB_STATE_FAILED, never);
  } else if (job->shown().has_hold() || !shutdown_.MayStartJobs() || !table_.has_room || AwaitsDevices(*job) ||
             job->tenant->policy->disabled || job->tenant->dependencies.IsWaiting(job->shown().id())) {
    return;
  } else if (job->stored->not_before > now) {
    WaitUntil(scope, job, job->stored->not_before);
  } else if (const Duration debt = quotas_.ledger().DebtFor(job->tenant->key, scheduler::Resource::kDeviceTime, now);
             debt > Duration{0}) {
    WaitUntil(scope, job, now + std::min(debt, kDebtLookAgain));
  } else if (TakeArrayTurn(job)) {
    Queue(scope, job);
  }
}

void JobLifecycle::WaitUntil(CoreScope& scope, const ExecutionRef& job, Time when) {
  if (job->stored->wait_timer.first > when) {
    monitor_.DropTimer(job->stored->wait_timer);
    job->stored->wait_timer = monitor_.AddTimer(scope, when, [this, job](CoreScope& inner) {
      job->stored->wait_timer = {kNever, 0};
      Settle(inner, job);
    });
  }
}

void JobLifecycle::Queue(CoreScope& scope, const ExecutionRef& job) {
  job->key = arbiter_.NextKey();
  job->phase = Execution::Phase::kQueued;
  table_.AddQueued(job);
  feed_.AddStateEvent(scope, *job);
  arbiter_.Tick(scope, {scheduler::JobQueued{.tenant = job->tenant->key,
                                             .job = job->key,
                                             .priority = job->priority,
                                             .devices = 0,  // Known when its attempt is sent.
                                             .admitted = true}});
}

// Makes a queued job wait again, until Settle finds that it may go on.
void JobLifecycle::LeaveQueue(CoreScope& scope, const ExecutionRef& job) {
  if (job->phase == Execution::Phase::kQueued) {
    Unqueue(scope, job);
    LeaveArrayTurn(scope, job);
    feed_.AddStateEvent(scope, *job);
    Settle(scope, job);
  }
}

void JobLifecycle::Unqueue(CoreScope& scope, const ExecutionRef& job) {
  table_.RemoveQueued(*job);
  job->phase = Execution::Phase::kWaiting;
  arbiter_.Tick(scope, {scheduler::JobEnded{job->tenant->key, job->key}});
}

// Nothing is sent before the attempt is on disk.
void JobLifecycle::OnTurn(CoreScope& scope, scheduler::JobKey key) {
  const ExecutionRef job = table_.FindQueued(key);
  if (job == nullptr) {
    return;
  }
  table_.RemoveQueued(*job);
  job->stored->has_turn = true;
  job->running = job->tenant->account.TakeAnyway(scheduler::Resource::kRunningJobs, 1);
  job->phase = Execution::Phase::kWaiting;
  const Duration pause = executors_.CrashPause(job->tenant->executor);
  job->stored->awaits_executor = pause > Duration{0};
  const bool has_debt =
      quotas_.ledger().DebtFor(job->tenant->key, scheduler::Resource::kDeviceTime, options_.clock->Now()) > Duration{0};
  if (!shutdown_.MayStartJobs() || !table_.has_room || job->tenant->policy->disabled || pause > Duration{0} ||
      has_debt || AwaitsDevices(*job)) {
    job->stored->not_before = options_.clock->Now() + pause;
    ReturnTurn(scope, job);
    return;
  }
  HPVMD_FAILPOINT("core.attempt.record").IgnoreError();
  StoredJob next = job->stored->row;
  next.set_attempts_spent(next.attempts_spent() + 1);
  next.set_lease(table_.lease);
  next.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
  next.mutable_job()->set_attempt(next.job().attempt() + 1);
  next.mutable_job()->set_started_unix_ns(options_.clock->WallNs());
  next.mutable_job()->clear_not_before_unix_ns();
  job->phase = Execution::Phase::kStarting;
  ChangeRow(scope, job, std::move(next), /*with_results=*/false, &JobLifecycle::OnStarted);
}

// Gives back the turn of a job that cannot start now. The tenant's next job then gets it, and perhaps none of
// thousands can start: so each gives it back by itself, in one of the tenant's turns.
void JobLifecycle::ReturnTurn(CoreScope& scope, const ExecutionRef& job) {
  monitor_.InLaterSlice(scope, job->tenant, [this, job](CoreScope& inner) {
    if (job->phase == Execution::Phase::kWaiting && job->stored->has_turn) {
      LeaveTurn(inner, job);
      LeaveArrayTurn(inner, job);
      Settle(inner, job);
    }
    return true;
  });
}

void JobLifecycle::OnStarted(CoreScope& scope, const ExecutionRef& job) {
  HPVMD_FAILPOINT("core.attempt.recorded").IgnoreError();
  job->phase = Execution::Phase::kReading;
  job->stored->attempt = std::make_unique<JobAttempt>();
  WatchRun(scope, job);
  job->stored->lost_cause = events::LostCause::kExecutor;
  table_.SetWaiting(*job, false);
  table_.SetRunning(*job, true);
  if (job->stored->events == nullptr) {
    feed_.EventsOf(*job);  // Includes this event.
    feed_.AddChange(scope, *job);
  } else {
    feed_.AddStateEvent(scope, *job);
  }
  options_.observer->On(events::JobChanged{job->tenant->name, job->shown(), job->stored->lost_cause});
  LogInfo(
      "Job started",
      {{"tenant", job->tenant->name}, {"job", job->shown().id()}, {"attempt", std::to_string(job->shown().attempt())}});
  if (job->stored->cancel_asked || job->stored->is_late || shutdown_.closed) {
    Dispatch(scope, job, nullptr);
    return;
  }
  auto parts = std::make_shared<StoredParts>();
  parts->tenant = job->tenant;
  parts->id = job->shown().id();
  parts->blobs.assign(job->stored->row.blobs().begin(), job->stored->row.blobs().end());
  auto reader = std::make_shared<StoredPartsReader>(*options_.jobs, *parts, MemoryOf(job->tenant));
  options_.jobs->Post(job->tenant->name, [this, job, parts, reader] {
    const Status failed = HPVMD_FAILPOINT("core.attempt.read");
    const StatusOr<bool> step = failed.ok() ? reader->Step() : StatusOr<bool>(failed);
    if (step.ok() && !*step) {
      return FairQueue::Step::kAgain;
    }
    CoreScope inner(monitor_);
    if (step.ok()) {
      Dispatch(inner, job, parts.get());
    } else {
      FinishAttempt(inner, job, While(step.status(), "reading the job's stored request"));
    }
    return FairQueue::Step::kDone;
  });
}

// Blobs read from disk are kept for later users if there is room; otherwise they belong to this job alone.
BlobMemory JobLifecycle::MemoryOf(const TenantRef& tenant) {
  BlobMemory memory;
  memory.find = [this, tenant](bool is_module, const Sha256& hash) -> BlobRef {
    CoreScope scope(monitor_);
    return (is_module ? tenant->modules : tenant->graphs).Find(hash).value_or(nullptr);
  };
  memory.keep = [this, tenant](bool is_module, BlobRef blob) {
    const auto kind = is_module ? Graphs::BlobKind::kModule : Graphs::BlobKind::kGraph;
    return graphs_.InsertBlob(*tenant, kind, blob).value_or(blob);
  };
  return memory;
}

// Sends the attempt, unless an event came in between. `parts` is null when such an event kept them from being read.
void JobLifecycle::Dispatch(CoreScope& scope, const ExecutionRef& job, StoredParts* parts) {
  if (job->phase != Execution::Phase::kReading) {
    return;
  }
  const bool is_suspended = job->tenant->policy->disabled;
  job->stored->attempt->broken_off |= shutdown_.breaking_off || is_suspended;
  Status stop = HPVMD_FAILPOINT("core.attempt.dispatch");
  if (job->stored->cancel_asked) {
    stop = Cancelled("The job was cancelled.");
  } else if (job->stored->is_late) {
    stop = DeadlineExceeded("The job did not end within its deadline.");
  } else if (!job->stored->attempt->over.ok()) {
    stop = job->stored->attempt->over;
  } else if (is_suspended) {
    stop = Unavailable(Message(Tenants::RefuseTenant(*job->tenant)));
  } else if (shutdown_.breaking_off || parts == nullptr) {
    stop = Unavailable("The server stopped before the attempt began.");
  }
  job->sending = std::make_shared<Sending>();
  stop = stop.ok() ? Bind(scope, *job, *parts) : stop;
  if (!stop.ok()) {
    job->sending.reset();
    FinishAttempt(scope, job, std::move(stop));
    return;
  }
  job->stored->attempt->request = parts->stored;
  job->sending->input.on_log = [this, weak = std::weak_ptr(job), attempt = job->shown().attempt()](v1::RunLog log) {
    if (const ExecutionRef known = weak.lock()) {
      OnLog(known, attempt, std::move(log));
    }
  };
  runs_.StartAttempt(scope, job, [this, job](RunOutcome outcome) { OnAttemptDone(job, std::move(outcome)); });
}

// Called on the thread that receives executors' answers; a late log belongs to an attempt that is over.
void JobLifecycle::OnLog(const ExecutionRef& job, uint32_t attempt, v1::RunLog log) {
  CoreScope scope(monitor_);
  if (job->phase == Execution::Phase::kSent && job->shown().attempt() == attempt) {
    feed_.AddLog(scope, *job, std::move(log));
  }
}

Status JobLifecycle::Bind(CoreScope& scope, Execution& job, StoredParts& parts) {
  Tenant& tenant = *job.tenant;
  Sending& sending = *job.sending;
  StoredRequest& stored = *parts.stored;
  v1::SubmitRequest& request = *stored.mutable_request();
  sending.input.options.set_repeat(std::max<uint32_t>(1, job.shown().repeat()));
  HPVMD_RETURN_IF_ERROR(SetIteration(request, &sending.input.options));
  sending.input.options.set_node_records_max(kPlacementsMax);
  sending.input.options.set_log(true);
  sending.input.options.set_device_ns_max(job.shown().limits().device_ns());
  sending.input.options.set_is_last_chance(job.stored->row.attempts_spent() >=
                                           std::max<uint32_t>(1, job.shown().attempts_max()));
  HPVMD_ASSIGN_OR_RETURN(job.preparation,
                         graphs_.MakePreparation(scope, tenant, stored.check(), parts.document, parts.modules,
                                                 /*is_limited=*/false));
  std::map<uint32_t, const internal::StoredInput*> inputs;
  for (const internal::StoredInput& input : stored.inputs()) {
    inputs[input.index()] = &input;
  }
  HPVMD_RETURN_IF_ERROR(FillIndex(request, job.shown().array_index(), [&](int position) {
    const auto found = inputs.find(static_cast<uint32_t>(position));
    return found == inputs.end() ? v1::ELEMENT_TYPE_UNSPECIFIED : static_cast<v1::ElementType>(found->second->type());
  }));
  sending.input.symbols.insert(request.symbols().begin(), request.symbols().end());
  sending.input.inputs.resize(static_cast<size_t>(request.inputs_size()));
  for (int i = 0; i < request.inputs_size(); ++i) {
    supervisor::InputTensor& input = sending.input.inputs[static_cast<size_t>(i)];
    input.name = request.inputs(i).name();
    const auto found = inputs.find(static_cast<uint32_t>(i));
    if (request.inputs(i).has_tensor()) {
      HPVMD_RETURN_IF_ERROR(ResolveTensor(request.inputs(i).tensor(), "Input \"" + input.name + "\"", input));
    } else if (found == inputs.end()) {
      return DataLoss("The stored request lacks input \"" + input.name + "\".");
    } else {
      input.type = static_cast<ElementType>(found->second->type());
      input.shape.assign(found->second->shape().begin(), found->second->shape().end());
      if (const auto segment = parts.segments.find(static_cast<uint32_t>(i)); segment != parts.segments.end()) {
        input.memory = SliceOf(*segment->second, found->second->size_bytes());
        sending.pins.push_back(segment->second);
      }
    }
    sending.input_shapes.push_back({static_cast<uint8_t>(input.type), input.shape});
  }
  for (const v1::OutputBinding& binding : request.outputs()) {
    const Status resolved = ResolveOutput(tenant.buffers, binding, sending.plans[binding.name()]);
    if (absl::IsNotFound(resolved) && job.stored->restored) {
      return DataLoss("Output \"" + binding.name() + "\" goes to buffer " + binding.buffer_id() +
                      ", which was lost when the daemon that the job was submitted to ended.");
    }
    HPVMD_RETURN_IF_ERROR(resolved);
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
