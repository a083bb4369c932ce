// SPDX-License-Identifier: Apache-2.0
// Jobs that are held: they wait, with all jobs that depend on them, until they are released.
#include <utility>

#include "base/failpoint.h"
#include "server/core/jobs/job_lifecycle.h"
#include "server/jobs/rows/job_state_name.h"
#include "server/process/log.h"

namespace hpvm::server {

void JobLifecycle::AskHold(CoreScope& scope, const ExecutionRef& job, HoldCommand command) {
  if (shutdown_.closed) {
    command.then(scope, Unavailable("The server stopped."));
    return;
  }
  job->stored->hold_commands.push_back(std::move(command));
  if (job->phase != Execution::Phase::kWaiting || !job->stored->writing) {
    RecordHolds(scope, job);
  }
}

// Answers the requests in their order, up to one that changes something: that one is written, and the others wait for
// it.
void JobLifecycle::RecordHolds(CoreScope& scope, const ExecutionRef& job) {
  const v1::Job& shown = job->shown();
  while (!job->stored->hold_commands.empty()) {
    const HoldCommand& command = job->stored->hold_commands.front();
    if (job->phase != Execution::Phase::kWaiting && job->phase != Execution::Phase::kQueued) {
      AnswerHolds(scope, *job,
                  FailedPrecondition(shown.state() == v1::JOB_STATE_ACCEPTED
                                         ? shown.id() + " starts or ends at this moment; try again."
                                         : shown.id() + " is " + StateName(shown.state()) +
                                               "; only a job that has not started can be held or released."));
      return;
    }
    const bool by_admin = command.hold.by_admin();
    if (command.held ? shown.has_hold() && (shown.hold().by_admin() || !by_admin) : !shown.has_hold()) {
      AnswerHold(scope, *job, absl::OkStatus());  // The job already is in that state.
      continue;
    }
    if (!command.held && shown.hold().by_admin() && !by_admin) {
      AnswerHold(scope, *job,
                 MakeStatus(absl::StatusCode::kPermissionDenied,
                            "An administrator holds " + shown.id() + ", and only an administrator can release it."));
      continue;
    }
    HPVMD_FAILPOINT("core.hold.record").IgnoreError();
    if (job->phase == Execution::Phase::kQueued) {
      Unqueue(scope, job);
      LeaveArrayTurn(scope, job);
    }
    StoredJob next = job->stored->row;
    if (command.held) {
      *next.mutable_job()->mutable_hold() = command.hold;
    } else {
      next.mutable_job()->clear_hold();
      next.set_released_unix_ns(options_.clock->WallNs());
    }
    ChangeRow(scope, job, std::move(next), /*with_results=*/false, &JobLifecycle::OnHoldRecorded);
    return;
  }
}

void JobLifecycle::OnHoldRecorded(CoreScope& scope, const ExecutionRef& job) {
  HPVMD_FAILPOINT("core.hold.recorded").IgnoreError();
  const v1::Job& shown = job->shown();
  LogInfo(shown.has_hold() ? "Job held" : "Job let go",
          {{"tenant", job->tenant->name},
           {"job", shown.id()},
           {"by", job->stored->hold_commands.empty() ? "" : job->stored->hold_commands.front().hold.by()}});
  feed_.AddStateEvent(scope, *job);
  if (!job->stored->hold_commands.empty()) {
    if (job->stored->hold_commands.front().changed) {
      job->stored->hold_commands.front().changed();
    }
    AnswerHold(scope, *job, absl::OkStatus());
  }
  if (!job->stored->cancel_asked && !job->stored->is_late) {
    RecordHolds(scope, job);  // Requests that came meanwhile are handled before a turn.
  }
  Settle(scope, job);
}

void JobLifecycle::AnswerHold(CoreScope& scope, Execution& job, const Status& status) {
  const HoldCommand command = std::move(job.stored->hold_commands.front());
  job.stored->hold_commands.pop_front();
  command.then(scope, status);
}

void JobLifecycle::AnswerHolds(CoreScope& scope, Execution& job, const Status& status) {
  while (!job.stored->hold_commands.empty()) {
    AnswerHold(scope, job, status);
  }
}

}  // namespace hpvm::server
