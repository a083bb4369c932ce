// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "server/core/jobs/job_lifecycle.h"
#include "server/process/log.h"

namespace hpvm::server {

Time JobLifecycle::RestoredDeadline(const Execution& job) const {
  const v1::Job& shown = job.shown();
  if (shown.deadline_unix_ns() == 0) {
    return kNever;
  }
  const Duration most = std::max(Duration(shown.deadline_unix_ns() - shown.created_unix_ns()), Duration{0});
  return options_.clock->Now() +
         std::clamp(Duration(shown.deadline_unix_ns() - options_.clock->WallNs()), Duration{0}, most);
}

// Until then it does not start: a job whose deadline has passed must not.
void JobLifecycle::LookAtDeadlineAgain(CoreScope& scope, const ExecutionRef& job) {
  const Time then = options_.clock->Now() + kLookAgain;
  job->stored->not_before = std::max(job->stored->not_before, then);
  job->deadline_timer = monitor_.AddTimer(scope, then, [this, job](CoreScope& inner) {
    job->deadline_timer = {kNever, 0};
    job->deadline = RestoredDeadline(*job);
    if (job->deadline <= options_.clock->Now()) {
      job->stored->is_late = true;
    } else {
      SetDeadline(inner, job);
    }
    Settle(inner, job);
  });
}

// A job that runs has read what it needs, and may end well; one that is to run again would miss it.
void JobLifecycle::OnDamage(const JobDamage& damage) {
  CoreScope scope(monitor_);
  const TenantRef tenant = tenants_.FindKnown(damage.tenant);
  if (tenant == nullptr || shutdown_.closed) {
    return;
  }
  const auto found = tenant->jobs.find(damage.id);
  if (found == tenant->jobs.end()) {
    return;
  }
  const ExecutionRef job = found->second;
  job->stored->damage = damage.what;
  if (job->phase == Execution::Phase::kQueued) {
    Unqueue(scope, job);
  }
  Settle(scope, job);
}

void JobLifecycle::SetDeadline(CoreScope& scope, const ExecutionRef& job) {
  if (job->deadline == kNever) {
    return;
  }
  job->deadline_timer = monitor_.AddTimer(scope, job->deadline, [this, job](CoreScope& inner) {
    job->deadline_timer = {kNever, 0};
    job->stored->is_late = true;
    if (job->phase == Execution::Phase::kQueued) {
      Unqueue(inner, job);
    }
    runs_.StopRun(inner, job, DeadlineExceeded("The job did not end within its deadline."));
    Settle(inner, job);
  });
}

}  // namespace hpvm::server
