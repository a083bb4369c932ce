// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/core/jobs/job_lifecycle.h"
#include "server/process/log.h"

namespace hpvm::server {

void JobLifecycle::AskCancel(CoreScope& scope, const ExecutionRef& job, CommandDone then) {
  if (shutdown_.closed) {
    then(scope, Unavailable("The server stopped."));
    return;
  }
  if (job->shown().cancel_requested() && job->shown().state() == v1::JOB_STATE_RUNNING) {
    then(scope, absl::OkStatus());  // On disk already.
    return;
  }
  job->stored->cancel_waiters.push_back(std::move(then));
  if (std::exchange(job->stored->cancel_asked, true)) {
    return;
  }
  HPVMD_FAILPOINT("core.cancel.record").IgnoreError();
  switch (job->phase) {
    case Execution::Phase::kQueued:
      Unqueue(scope, job);
      Settle(scope, job);
      break;
    case Execution::Phase::kWaiting:
      Settle(scope, job);
      break;
    case Execution::Phase::kReading:
    case Execution::Phase::kReady:
    case Execution::Phase::kSent:
    case Execution::Phase::kAnswered: {
      StoredJob next = job->stored->row;
      next.mutable_job()->set_cancel_requested(true);
      ChangeRow(scope, job, std::move(next), /*with_results=*/false, &JobLifecycle::OnCancelRecorded);
      break;
    }
    default:
      break;  // A write is in flight, or the outputs are: the next step honours the cancellation.
  }
}

void JobLifecycle::OnCancelRecorded(CoreScope& scope, const ExecutionRef& job) {
  HPVMD_FAILPOINT("core.cancel.recorded").IgnoreError();
  feed_.AddStateEvent(scope, *job);
  options_.observer->On(events::JobChanged{job->tenant->name, job->shown(), job->stored->lost_cause});
  AnswerCancels(scope, *job, absl::OkStatus());
  runs_.StopRun(scope, job, Cancelled("The job was cancelled."));
  if (job->phase == Execution::Phase::kStoring) {
    EndAttempt(scope, job);  // The attempt ended while the cancellation was written.
  }
}

void JobLifecycle::AnswerCancels(CoreScope& scope, Execution& job, const Status& status) {
  for (const CommandDone& then : std::exchange(job.stored->cancel_waiters, {})) {
    then(scope, status);
  }
}

void JobLifecycle::RefuseCommands(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_.all()) {
    for (const auto& [id, job] : tenant->jobs) {
      AnswerCancels(scope, *job, Unavailable("The server stopped before the cancellation was stored."));
      AnswerHolds(scope, *job, Unavailable("The server stopped before the job's hold or release was stored."));
    }
  }
}

}  // namespace hpvm::server
