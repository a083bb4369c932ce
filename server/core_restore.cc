// SPDX-License-Identifier: Apache-2.0
// A new daemon on an old store: every job that has not ended is taken up where the disk says it is.
#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/core.h"
#include "server/jobs/retry.h"
#include "server/log.h"

namespace hpvm {

Status Core::Restore() {
  JobDatabase& database = options_.jobs->database();
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("core.restore"));
  HPVMD_ASSIGN_OR_RETURN(const uint64_t lease, database.NextLease());
  HPVMD_ASSIGN_OR_RETURN(const auto uses, database.Use());
  std::vector<StoredJob> rows;
  std::vector<std::string> damaged;
  HPVMD_RETURN_IF_ERROR(database.LoadLive([&](StoredJob row) { rows.push_back(std::move(row)); }, &damaged));
  for (const std::string& id : damaged) {
    LogError("Job damaged: its row cannot be read, and it does not run", {{"job", id}});
  }
  std::vector<LiveJobRef> taken;
  {
    CoreScope scope(*this);
    for (const auto& [name, use] : uses) {
      const auto found = tenants_.find(name);
      const TenantRef tenant = found != tenants_.end() ? found->second : AddTenant(scope, name);
      tenant->stored_rows.Merge(tenant->account.TakeAnyway(scheduler::Resource::kDiskBytes, use.stored_bytes));
    }
    for (StoredJob& row : rows) {
      taken.push_back(TakeUp(scope, std::move(row)));
    }
  }
  std::map<Tenant*, std::map<std::string, UnitRows>> units;
  ReadForRestore(taken, &units);
  CoreScope scope(*this);
  lease_ = lease;
  for (const LiveJobRef& job : taken) {
    const std::vector<v1::JobDependency> after(job->row.job().after().begin(), job->row.job().after().end());
    AddDependencies(*job->tenant, *job, after, units[job->tenant.get()]);
  }
  for (const LiveJobRef& job : taken) {
    if (job->row.job().state() != v1::JOB_STATE_RUNNING) {
      Settle(scope, job);
      continue;
    }
    if (HPVMD_MUTANT("core_running_forgotten_at_restart")) {
      continue;
    }
    RunOutcome lost;
    lost.was_sent = true;
    lost.outcome = Unavailable("The daemon ended while attempt " + std::to_string(job->row.job().attempt()) + " ran.");
    job->attempt = std::make_unique<JobAttempt>();
    FinishAttempt(scope, job, std::move(lost));
  }
  ScheduleRetention(scope, std::chrono::seconds(10));
  LogInfo("Jobs taken up", {{"jobs", std::to_string(taken.size())}, {"lease", std::to_string(lease)}});
  return absl::OkStatus();
}

LiveJobRef Core::TakeUp(CoreScope& scope, StoredJob row) {
  auto job = std::make_shared<LiveJob>();
  const auto found = tenants_.find(row.tenant());
  job->tenant = found != tenants_.end() ? found->second : AddTenant(scope, row.tenant());
  job->row = std::move(row);
  job->restored = true;
  const v1::Job& shown = job->row.job();
  const bool is_running = shown.state() == v1::JOB_STATE_RUNNING;
  job->phase = is_running ? LiveJob::Phase::kReading : LiveJob::Phase::kWaiting;
  job->cancel_asked = shown.cancel_requested() && !HPVMD_MUTANT("core_cancel_forgotten_at_restart");
  // The wall clock went on meanwhile, or jumped: waits become longer or shorter, within what they may be at all.
  const Time now = options_.clock->Now();
  const int64_t wall = options_.clock->WallNs();
  const auto until = [&](int64_t unix_ns, Duration most) {
    return std::clamp(Duration(unix_ns - wall), Duration{0}, most);
  };
  const Duration age = std::clamp(Duration(wall - shown.created_unix_ns()), Duration{0}, Duration(now));
  const Duration deadline = std::max(Duration(shown.deadline_unix_ns() - shown.created_unix_ns()), Duration{0});
  job->received = now - age;
  job->deadline = shown.deadline_unix_ns() == 0 ? kNever : now + until(shown.deadline_unix_ns(), deadline);
  job->not_before = now + (shown.not_before_unix_ns() == 0
                               ? Duration{0}
                               : until(shown.not_before_unix_ns(),
                                       std::chrono::milliseconds(config_->executor_crash_window_ms) + kRetryDelayMax));
  job->tenant->jobs.emplace(shown.id(), job);
  SetWaiting(*job, !is_running);
  SetRunning(*job, is_running);
  JoinArray(job, /*is_new=*/false);
  if (job->deadline <= now) {
    job->is_late = true;
  } else {
    SetDeadline(scope, job);
  }
  return job;
}

// What the restored jobs come after and that has ended. What is not even in the store any more had ended as it was to:
// otherwise those that waited for it would have ended then.
void Core::ReadForRestore(const std::vector<LiveJobRef>& taken,
                          std::map<Tenant*, std::map<std::string, UnitRows>>* units) {
  std::vector<std::pair<Tenant*, std::string>> unknown;
  {
    CoreScope scope(*this);
    for (const LiveJobRef& job : taken) {
      for (const v1::JobDependency& dependency : job->row.job().after()) {
        if (!StateOfUnit(*job->tenant, dependency.job_id(), (*units)[job->tenant.get()]).has_value()) {
          unknown.emplace_back(job->tenant.get(), dependency.job_id());
        }
      }
    }
  }
  for (const auto& [tenant, id] : unknown) {
    if ((*units)[tenant].contains(id)) {
      continue;
    }
    if (const Status read = ReadUnits(*tenant, {id}, &(*units)[tenant]); !read.ok()) {
      LogWarning("A job comes after one that is no longer stored", {{"tenant", tenant->name}, {"job", id}});
    }
  }
}

void Core::SetDeadline(CoreScope& scope, const LiveJobRef& job) {
  if (job->deadline == kNever) {
    return;
  }
  job->deadline_timer = AddTimer(scope, job->deadline, [this, job](CoreScope& inner) {
    job->deadline_timer = {kNever, 0};
    job->is_late = true;
    if (job->phase == LiveJob::Phase::kQueued) {
      Unqueue(inner, job);
    }
    if (job->phase == LiveJob::Phase::kRunning) {
      StopRun(inner, std::shared_ptr<RunOp>(job->attempt->op),
              DeadlineExceeded("The job did not end within its deadline."));
    } else {
      Settle(inner, job);
    }
  });
}

}  // namespace hpvm
