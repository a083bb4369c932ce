// SPDX-License-Identifier: Apache-2.0
// Ends attempts and jobs: stores the outputs, then the state, then informs everyone who waits.
#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/core/jobs/job_lifecycle.h"
#include "server/core/jobs/submission.h"
#include "server/core/state/run_log.h"
#include "server/jobs/rows/job_state_name.h"
#include "server/jobs/rows/retry.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Outputs up to this size are stored in the job's row; larger ones are files.
constexpr uint64_t kSmallOutputBytes = 32 * limits::kKiB;
constexpr int kLostAttemptsKept = 10;
constexpr Duration kPutAgain = std::chrono::seconds(1);
// Number of jobs that continue at once because another has ended; the others follow.
constexpr size_t kToldAtOnce = 32;

// Collects the outputs that the job keeps: their bytes, or the source to read them from. Called without the mutex.
Status CollectResults(const std::shared_ptr<RunOutcome>& outcome, JobAttempt& into) {
  for (const RunOutput& output : outcome->outputs) {
    if (!output.buffer_id.empty() || output.in_new_buffer) {
      continue;
    }
    internal::StoredResult& result = *into.results.add_outputs();
    result.set_name(output.name);
    v1::StoredOutput& header = *result.mutable_header();
    header.set_type(static_cast<v1::ElementType>(output.type));
    header.mutable_shape()->Add(output.shape.begin(), output.shape.end());
    header.set_size_bytes(output.bytes);
    if (output.bytes > kSmallOutputBytes) {
      BlobInput& blob = into.blobs.emplace_back();
      if (output.segment != nullptr) {
        blob.source.fd = output.segment->fd.get();
        blob.source.fd_bytes = output.bytes;
        blob.keeps = output.segment;
      } else {
        blob.source.bytes = output.data;  // Points into the outcome.
        blob.keeps = outcome;
      }
      into.blob_results.push_back(into.results.outputs_size() - 1);
    } else if (output.segment == nullptr) {
      result.set_data(output.data.data(), output.data.size());
    } else {
      std::string& data = *result.mutable_data();
      data.resize(output.bytes);
      HPVMD_RETURN_IF_ERROR(
          ReadAt(output.segment->fd.get(), 0, {reinterpret_cast<uint8_t*>(data.data()), data.size()}));
    }
  }
  return absl::OkStatus();
}

v1::OutputValue ValueOf(const RunOutput& output) {
  v1::OutputValue value;
  value.set_name(output.name);
  if (output.buffer_id.empty()) {
    v1::StoredOutput& stored = *value.mutable_stored();
    stored.set_type(static_cast<v1::ElementType>(output.type));
    stored.mutable_shape()->Add(output.shape.begin(), output.shape.end());
    stored.set_size_bytes(output.bytes);
  } else {
    v1::BufferView& view = *value.mutable_buffer();
    view.set_buffer_id(output.buffer_id);
    view.set_generation(output.generation);
    view.set_type(static_cast<v1::ElementType>(output.type));
    view.mutable_shape()->Add(output.shape.begin(), output.shape.end());
  }
  return value;
}

// Fails a run that exceeded its limit of device time, even if its executor did not enforce the limit and only reports
// the time.
void JudgeDeviceTime(const Execution& job, RunOutcome& outcome) {
  const uint64_t limit_ns = job.shown().limits().device_ns();
  const internal::RunDone& done = outcome.reply.done;
  uint64_t took_ns = 0;
  for (const uint64_t ns : done.device_ns()) {
    took_ns += std::min(ns, UINT64_MAX - took_ns);
  }
  if (limit_ns == 0 ||
      (took_ns <= limit_ns && !(done.over_device_time() && absl::IsResourceExhausted(outcome.outcome.status)))) {
    return;
  }
  outcome.outcome =
      ResourceExhausted("The attempt took more device time than its limit " +
                        LimitText(limit_ns, job.stored->row.asked_limits().device_ns(), "job-device-seconds"));
}

std::string Times(uint32_t count) { return std::to_string(count) + (count == 1 ? " attempt" : " attempts"); }

}  // namespace

// Runs without the mutex: no other thread accesses the outcome yet.
void JobLifecycle::OnAttemptDone(const ExecutionRef& job, RunOutcome outcome) {
  JobAttempt collected;
  auto shared = std::make_shared<RunOutcome>(std::move(outcome));
  if (const Status answered = HPVMD_FAILPOINT("core.attempt.answered"); !answered.ok()) {
    shared->outcome = answered;
  }
  if (shared->outcome.ok()) {
    if (Status read = CollectResults(shared, collected); !read.ok()) {
      shared->outcome = std::move(read);
    }
  }
  CoreScope scope(monitor_);
  if (job->stored->attempt == nullptr || job->phase != Execution::Phase::kAnswered) {
    return;
  }
  LeaveRun(*job);
  JudgeDeviceTime(*job, *shared);
  job->stored->attempt->results = std::move(collected.results);
  job->stored->attempt->blobs = std::move(collected.blobs);
  job->stored->attempt->blob_results = std::move(collected.blob_results);
  feed_.AddRunEvents(scope, *job, *shared);
  job->stored->lost_cause =
      shared->reply.done.lost_devices().empty() ? events::LostCause::kExecutor : events::LostCause::kDevice;
  job->stored->attempt->outcome = std::move(shared);
  job->stored->attempt->request.reset();
  job->preparation.reset();
  job->phase = Execution::Phase::kStoring;
  if (!job->stored->writing) {
    EndAttempt(scope, job);
  }
}

// For attempts that never reached an executor, or that ended with an earlier daemon.
void JobLifecycle::FinishAttempt(CoreScope& scope, const ExecutionRef& job, RunOutcome outcome) {
  if (job->stored->attempt == nullptr || job->phase != Execution::Phase::kReading) {
    return;
  }
  LeaveRun(*job);
  outcome.SetTotals(options_.clock->Now() - job->received, options_.clock->Now() - job->received);
  job->preparation.reset();
  job->stored->attempt->outcome = std::make_shared<RunOutcome>(std::move(outcome));
  job->phase = Execution::Phase::kStoring;
  if (!job->stored->writing) {
    EndAttempt(scope, job);
  }
}

void JobLifecycle::EndAttempt(CoreScope& scope, const ExecutionRef& job) {
  const Outcome& outcome = job->stored->attempt->outcome->outcome;
  AttemptFacts facts;
  facts.cancel_asked = job->stored->cancel_asked;
  facts.is_late = job->stored->is_late;
  facts.broken_off = job->stored->attempt->broken_off || shutdown_.stopped;
  facts.was_sent = job->stored->attempt->outcome->was_sent;
  facts.was_refused = !facts.was_sent && outcome.detail.has_value() && outcome.detail->retry_after_ns() > 0;
  facts.in_place = job->stored->row.in_place();
  facts.attempts_spent = job->stored->row.attempts_spent();
  facts.attempts_max = std::max<uint32_t>(1, job->shown().attempts_max());
  switch (JudgeAttempt(outcome.status, facts)) {
    case AttemptEnd::kAgain:
      PutBack(scope, job, /*counts=*/true);
      return;
    case AttemptEnd::kAgainFree:
      PutBack(scope, job, /*counts=*/false);
      return;
    case AttemptEnd::kDead: {
      Outcome dead(Unavailable("Each of the job's " + Times(facts.attempts_spent) +
                               " was lost; the job is not tried again. The last attempt: " + Message(outcome.status)));
      dead.detail = outcome.detail;
      EndJob(scope, job, v1::JOB_STATE_DEAD, std::move(dead));
      return;
    }
    case AttemptEnd::kInPlace:
      EndJob(scope, job, v1::JOB_STATE_FAILED,
             While(outcome.status, "running a job that is not tried again, because it writes a buffer that it reads"));
      return;
    case AttemptEnd::kFinal:
      break;
  }
  if (outcome.ok()) {
    StoreOutputs(scope, job);
  } else if (job->stored->cancel_asked &&
             (absl::IsCancelled(outcome.status) || IsInfrastructureFault(outcome.status))) {
    EndJob(scope, job, v1::JOB_STATE_CANCELLED, Cancelled("The job was cancelled."));
  } else if (job->stored->is_late && IsInfrastructureFault(outcome.status)) {
    EndJob(scope, job, v1::JOB_STATE_FAILED, DeadlineExceeded("The job did not end within its deadline."));
  } else {
    EndJob(scope, job, v1::JOB_STATE_FAILED, Outcome(outcome));
  }
}

void JobLifecycle::StoreOutputs(CoreScope& scope, const ExecutionRef& job) {
  JobAttempt& attempt = *job->stored->attempt;
  Status kept = HPVMD_FAILPOINT("core.end.outputs");
  kept = kept.ok() ? KeepOutputs(*job->tenant, attempt) : kept;
  if (!kept.ok()) {
    DropOutputs(*job->tenant, attempt);
    EndJob(scope, job, v1::JOB_STATE_FAILED, std::move(kept));
  } else if (attempt.blobs.empty()) {
    EndJob(scope, job, v1::JOB_STATE_SUCCEEDED, Outcome());
  } else if (!shutdown_.closed) {
    PutOutputs(job);
  }
}

Status JobLifecycle::KeepOutputs(Tenant& tenant, JobAttempt& attempt) {
  uint64_t bytes = 0;
  for (const internal::StoredResult& result : attempt.results.outputs()) {
    bytes += result.header().size_bytes();
  }
  HPVMD_RETURN_IF_ERROR(quotas_.ReserveBytes(tenant, bytes, "The job's outputs", &attempt.disk_bytes));
  std::vector<std::string> made;
  HPVMD_RETURN_IF_ERROR(buffers_.MakeBuffers(tenant, attempt.outcome->outputs, &made));
  buffers_.ReserveGenerations(tenant, attempt.outcome->outputs);
  for (const RunOutput& output : attempt.outcome->outputs) {
    *attempt.ended.add_outputs() = ValueOf(output);
  }
  return absl::OkStatus();
}

// Drops the outputs of a job that ends without them.
void JobLifecycle::DropOutputs(Tenant& tenant, JobAttempt& attempt) {
  for (const RunOutput& output : attempt.outcome->outputs) {
    if (output.in_new_buffer && !output.buffer_id.empty()) {
      tenant.buffers.Erase(output.buffer_id).IgnoreError();
    }
  }
  attempt.outcome->outputs.clear();
  attempt.ended.clear_outputs();
  attempt.results.clear_outputs();
  attempt.blobs.clear();
  attempt.blob_results.clear();
  attempt.disk_bytes.Release();
}

// Keeps only the counts of the log when there is no room for it.
void JobLifecycle::KeepLog(Tenant& tenant, JobAttempt& attempt) {
  if (attempt.outcome == nullptr || IsEmpty(attempt.outcome->reply.done.log())) {
    return;
  }
  v1::RunLog& log = *attempt.results.mutable_log();
  log = std::move(*attempt.outcome->reply.done.mutable_log());
  if (!quotas_.ReserveBytes(tenant, log.ByteSizeLong(), "The job's log", &attempt.disk_bytes).ok()) {
    DropTexts(log);
  }
}

void JobLifecycle::PutOutputs(const ExecutionRef& job) {
  options_.jobs->PutBlobs(job->tenant->name, job->stored->attempt->blobs,
                          [this, job](const StatusOr<std::vector<PinnedBlob>>& blobs) { OnOutputs(job, blobs); });
}

void JobLifecycle::OnOutputs(const ExecutionRef& job, const StatusOr<std::vector<PinnedBlob>>& blobs) {
  CoreScope scope(monitor_);
  if (job->phase != Execution::Phase::kStoring || shutdown_.closed) {
    return;
  }
  JobAttempt& attempt = *job->stored->attempt;
  const bool is_full = blobs.status().code() == absl::StatusCode::kResourceExhausted;
  const bool was_awaiting = std::exchange(job->stored->awaits_room, is_full && !job->stored->cancel_asked);
  if (is_full && job->stored->cancel_asked) {
    DropOutputs(*job->tenant, attempt);
    EndJob(scope, job, v1::JOB_STATE_CANCELLED, Cancelled("The job was cancelled."));
  } else if (is_full) {
    // The result is not lost for want of room, but kept in memory. The job's turn goes to runs, which need no room: no
    // job takes it while the disk is known to be full.
    if (!table_.has_room) {
      LeaveTurn(scope, job);
    }
    uint64_t bytes = 0;
    for (const int result : attempt.blob_results) {
      bytes += attempt.results.outputs(result).header().size_bytes();
    }
    options_.jobs->AwaitRoom(bytes);
    if (!was_awaiting) {
      LogWarning("A job's outputs wait for room on the disk",
                 {{"tenant", job->tenant->name}, {"job", job->shown().id()}, {"error", Message(blobs.status())}});
      feed_.AddStateEvent(scope, *job);
    }
    monitor_.AddTimer(scope, options_.clock->Now() + kPutAgain, [this, job](CoreScope&) {
      if (job->phase == Execution::Phase::kStoring && !shutdown_.closed) {
        PutOutputs(job);
      }
    });
  } else if (blobs.status().code() == absl::StatusCode::kDataLoss) {
    LogError("Outputs not stored",
             {{"tenant", job->tenant->name}, {"job", job->shown().id()}, {"error", Message(blobs.status())}});
    AnswerCancels(scope, *job, Unavailable("The job store takes no writes: " + Message(blobs.status())));
  } else if (!blobs.ok()) {
    DropOutputs(*job->tenant, attempt);
    EndJob(scope, job, v1::JOB_STATE_FAILED, While(blobs.status(), "storing the job's outputs"));
  } else {
    for (size_t i = 0; i < blobs->size() && i < attempt.blob_results.size(); ++i) {
      const PinnedBlob& blob = (*blobs)[i];
      const std::string raw(Raw(blob.hash));
      attempt.results.mutable_outputs(attempt.blob_results[i])->set_sha256(raw);
      internal::StoredBlob& stored = attempt.stored_blobs.emplace_back();
      stored.set_sha256(raw);
      stored.set_size_bytes(blob.size_bytes);
      attempt.pins.push_back(blob.pin);
    }
    attempt.blobs.clear();
    EndJob(scope, job, v1::JOB_STATE_SUCCEEDED, Outcome());
  }
}

// The attempt was lost, or does not count: the job waits again.
void JobLifecycle::PutBack(CoreScope& scope, const ExecutionRef& job, bool counts) {
  const Outcome& why = job->stored->attempt->outcome->outcome;
  StoredJob next = job->stored->row;
  v1::Job& shown = *next.mutable_job();
  shown.set_state(v1::JOB_STATE_ACCEPTED);
  const int64_t now = options_.clock->WallNs();
  Duration delay{0};
  if (next.needs().empty() && job->preparation != nullptr) {
    *next.mutable_needs() = job->preparation->needs;  // An earlier release stored no needs.
  }
  if (counts) {
    v1::LostAttempt& lost = *shown.add_lost_attempts();
    lost.set_attempt(shown.attempt());
    lost.set_ended_unix_ns(now);
    *lost.mutable_error() = ToMessage(why);
    if (shown.lost_attempts_size() > kLostAttemptsKept) {
      shown.mutable_lost_attempts()->DeleteSubrange(0, shown.lost_attempts_size() - kLostAttemptsKept);
    }
    delay = RetryDelay(next.attempts_spent(), *options_.rng);
  } else {
    next.set_attempts_spent(next.attempts_spent() - std::min(1u, next.attempts_spent()));
    // The job is settled when devices open again, so it needs no delay.
    const bool is_told = !devices_.table().WhyAllClosed(next.needs()).empty();
    delay = Duration(why.detail.has_value() && !is_told ? static_cast<int64_t>(why.detail->retry_after_ns()) : 0);
  }
  shown.set_not_before_unix_ns(delay > Duration{0} ? now + delay.count() : 0);
  next.set_lease(0);
  job->stored->again_after = delay;
  job->phase = Execution::Phase::kEnding;
  HPVMD_FAILPOINT("core.putback.record").IgnoreError();
  LogInfo(counts ? "Job's attempt lost" : "Job's attempt put back", {{"tenant", job->tenant->name},
                                                                     {"job", shown.id()},
                                                                     {"attempt", std::to_string(shown.attempt())},
                                                                     {"error", Message(why.status)}});
  ChangeRow(scope, job, std::move(next), /*with_results=*/false, &JobLifecycle::OnPutBack);
}

void JobLifecycle::OnPutBack(CoreScope& scope, const ExecutionRef& job) {
  HPVMD_FAILPOINT("core.putback.recorded").IgnoreError();
  job->phase = Execution::Phase::kWaiting;
  job->stored->attempt.reset();
  job->stored->not_before =
      std::max(job->stored->not_before, options_.clock->Now() + std::exchange(job->stored->again_after, Duration{0}));
  table_.SetRunning(*job, false);
  table_.SetWaiting(*job, true);
  feed_.AddStateEvent(scope, *job);
  options_.observer->On(events::JobChanged{job->tenant->name, job->shown(), job->stored->lost_cause});
  LeaveTurn(scope, job);
  LeaveArrayTurn(scope, job);
  if (options_.shared != nullptr) {
    Forget(scope, job);  // The store gives it to a host again.
    return;
  }
  Settle(scope, job);
}

void JobLifecycle::EndJob(CoreScope& scope, const ExecutionRef& job, v1::JobState state, Outcome why) {
  StoredJob next = job->stored->row;
  v1::Job& shown = *next.mutable_job();
  shown.set_state(state);
  shown.set_ended_unix_ns(options_.clock->WallNs());
  shown.clear_not_before_unix_ns();
  shown.clear_hold();
  shown.set_cancel_requested(shown.cancel_requested() || job->stored->cancel_asked);
  shown.set_attempts_counted(next.attempts_spent());
  if (!why.ok()) {
    if (!why.detail.has_value()) {
      why.detail.emplace();
    }
    if (why.detail->job_id().empty()) {
      why.detail->set_job_id(shown.id());
    }
    *shown.mutable_error() = ToMessage(why);
  }
  if (JobAttempt* attempt = job->stored->attempt.get(); attempt != nullptr && attempt->outcome != nullptr) {
    const RunOutcome& outcome = *attempt->outcome;
    if (!why.ok()) {
      DropOutputs(*job->tenant, *attempt);
    }
    KeepLog(*job->tenant, *attempt);
    *shown.mutable_outputs() = attempt->ended.outputs();
    shown.set_nodes_run(outcome.reply.done.nodes_run());
    shown.set_nodes_total(outcome.reply.done.nodes_run());
    *shown.mutable_timing() = outcome.timing();
    next.mutable_blobs()->Add(attempt->stored_blobs.begin(), attempt->stored_blobs.end());
    next.set_stored_bytes(next.stored_bytes() + attempt->disk_bytes.amount());
    if (state == v1::JOB_STATE_DEAD) {
      v1::LostAttempt& lost = *shown.add_lost_attempts();
      lost.set_attempt(shown.attempt());
      lost.set_ended_unix_ns(shown.ended_unix_ns());
      *lost.mutable_error() = ToMessage(outcome.outcome);
    }
  }
  job->phase = Execution::Phase::kEnding;
  if (LiveArray* array = table_.ArrayOf(*job)) {
    array->waiting.erase(job->stored->row.sequence());
  }
  HPVMD_FAILPOINT("core.end.record").IgnoreError();
  const bool has_results = job->stored->attempt != nullptr;
  ChangeRow(scope, job, std::move(next), has_results, &JobLifecycle::OnEnded);
}

// The job's end is on disk: now it becomes visible.
void JobLifecycle::OnEnded(CoreScope& scope, const ExecutionRef& job) {
  HPVMD_FAILPOINT("core.end.recorded").IgnoreError();
  const v1::Job& shown = job->shown();
  // The room of rows in a shared store is not this host's; it was only held while they were written.
  if (job->stored->attempt != nullptr && options_.shared == nullptr) {
    job->tenant->stored_rows.Merge(std::move(job->stored->attempt->disk_bytes));
  }
  if (shown.state() == v1::JOB_STATE_SUCCEEDED && job->stored->attempt != nullptr) {
    buffers_.PublishBuffers(*job->tenant, job->stored->attempt->outcome->outputs);
  }
  options_.observer->On(events::JobChanged{job->tenant->name, shown, job->stored->lost_cause});
  LogInfo("Job ended", {{"tenant", job->tenant->name},
                        {"job", shown.id()},
                        {"state", StateName(shown.state())},
                        {"trace", shown.traceparent()},
                        {"error", shown.error().message()}});
  feed_.AddStateEvent(scope, *job);
  feed_.KeepRecent(*job);
  AnswerCancels(scope, *job, absl::OkStatus());
  AnswerHolds(scope, *job, FailedPrecondition(shown.id() + " has ended as " + StateName(shown.state()) + "."));
  Forget(scope, job);
  TellUnit(scope, job->tenant, shown.id(), UnitOf(shown.state()));
}

void JobLifecycle::LeaveTurn(CoreScope& scope, const ExecutionRef& job) {
  job->running.Release();
  if (std::exchange(job->stored->has_turn, false)) {
    arbiter_.Tick(scope, {scheduler::JobEnded{job->tenant->key, job->key}});
  }
}

// Removes the job from all of the core's state.
void JobLifecycle::Forget(CoreScope& scope, const ExecutionRef& job) {
  Tenant& tenant = *job->tenant;
  // A job given up in kSent keeps its phase: the executor's answer is still to be received.
  if (job->phase != Execution::Phase::kSent) {
    job->phase = Execution::Phase::kDone;
  }
  LeaveRun(*job);
  if (options_.shared != nullptr && job->stored->events != nullptr && !IsTerminal(job->shown().state()) &&
      !job->stored->events->watchers().empty()) {
    tenant.followed[job->shown().id()] = {.events = job->stored->events};
  }
  job->stored->attempt.reset();
  monitor_.DropTimer(job->stored->limit_timer);
  monitor_.DropTimer(job->deadline_timer);
  monitor_.DropTimer(job->stored->wait_timer);
  table_.SetWaiting(*job, false);
  table_.SetRunning(*job, false);
  tenant.dependencies.Remove(job->shown().id());
  tenant.jobs.erase(job->shown().id());
  tenant.by_sequence.erase(job->stored->row.sequence());
  LeaveTurn(scope, job);
  LeaveArray(scope, job, job->shown().state());
}

// The row differs from what the core knows: another writer changed it. The version on disk is right.
void JobLifecycle::GiveUp(CoreScope& scope, const ExecutionRef& job, const Status& why) {
  LogError("Job given up: its row in the store is not the expected one",
           {{"tenant", job->tenant->name}, {"job", job->shown().id()}, {"error", Message(why)}});
  AnswerCancels(scope, *job, Unavailable("The job's state is not known until the server has started again."));
  AnswerHolds(scope, *job, Unavailable("The job's state is not known until the server has started again."));
  runs_.StopRun(scope, job, Cancelled("The job was given up."));
  Forget(scope, job);
}

void JobLifecycle::TellUnit(CoreScope& scope, const TenantRef& tenant, const std::string& unit,
                            const UnitState& state) {
  bool more = false;
  for (const Dependencies::Change& change : tenant->dependencies.OnState(unit, state, kToldAtOnce, &more)) {
    if (const auto inserting = table_.inserting.find(change.waiter); inserting != table_.inserting.end()) {
      if (change.verdict == Verdict::kNever) {
        inserting->second->failed_dependency = change.because;
      }
      continue;
    }
    const auto found = tenant->jobs.find(change.waiter);
    if (found == tenant->jobs.end()) {
      continue;
    }
    const ExecutionRef job = found->second;
    if (change.verdict == Verdict::kNever) {
      job->stored->failed_dependency = change.because;
    }
    Settle(scope, job);
  }
  if (more) {
    monitor_.AddTimer(scope, options_.clock->Now(),
                      [this, tenant, unit, state](CoreScope& inner) { TellUnit(inner, tenant, unit, state); });
  }
}

}  // namespace hpvm::server
