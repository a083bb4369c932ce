// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_claims.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Time after which a job that is being written is given back.
constexpr Duration kGiveBackAgain = std::chrono::milliseconds(5);

}  // namespace

Status JobClaims::Take(StoredJob row) {
  CoreScope scope(monitor_);
  if (shutdown_.closed || shutdown_.stopped) {
    return FailedPrecondition("The server has stopped.");
  }
  const TenantRef tenant = tenants_.FindOrAdd(scope, row.tenant());
  const std::string id = row.job().id();
  if (tenant->jobs.contains(id)) {
    return FailedPrecondition("An earlier claim of job " + id + " has not ended.");
  }
  const ExecutionRef job = NewJob(tenant, std::move(row));
  job->stored->restored = true;
  job->stored->told = v1::JOB_STATE_ACCEPTED;
  const Time now = options_.clock->Now();
  const int64_t age = options_.clock->WallNs() - job->shown().created_unix_ns();
  job->received = now - std::clamp(Duration(age), Duration{0}, Duration(now));
  job->deadline = lifecycle_.RestoredDeadline(*job);
  if (const auto followed = tenant->followed.find(id); followed != tenant->followed.end()) {
    job->stored->events = followed->second.events;
    tenant->followed.erase(followed);
    feed_.TellWatched(*tenant);
  }
  table_.SetWaiting(*job, true);
  table_.AddLive(job);
  lifecycle_.SetDeadline(scope, job);
  LogInfo("Job claimed", {{"tenant", tenant->name}, {"job", id}});
  lifecycle_.Settle(scope, job);
  return absl::OkStatus();
}

bool JobClaims::Stop(const std::string& tenant_name, const std::string& id, StopReason why) {
  CoreScope scope(monitor_);
  const TenantRef tenant = tenants_.FindKnown(tenant_name);
  const auto found = tenant == nullptr ? decltype(tenant->jobs.end())() : tenant->jobs.find(id);
  if (tenant == nullptr || found == tenant->jobs.end()) {
    return false;
  }
  const ExecutionRef job = found->second;
  switch (why) {
    case StopReason::kCancelled:
      lifecycle_.AskCancel(scope, job, [](CoreScope&, const Status&) {});
      break;
    case StopReason::kExpired:
      lifecycle_.Expire(scope, job);
      break;
    case StopReason::kGivenBack:
      lifecycle_.GiveBack(scope, job);
      break;
    case StopReason::kLost:
      lifecycle_.Abandon(scope, job, FailedPrecondition("Another host has the job, or will have it."));
      break;
  }
  return true;
}

void JobClaims::Tell(const std::string& tenant_name, v1::Job job) {
  CoreScope scope(monitor_);
  const TenantRef tenant = tenants_.FindKnown(tenant_name);
  // The core reports the jobs that it has itself.
  if (tenant != nullptr && !tenant->jobs.contains(job.id()) && !tenant->recent.contains(job.id())) {
    feed_.AddForeign(scope, tenant, std::move(job));
  }
}

void JobClaims::TellGap(const std::string& tenant_name) {
  CoreScope scope(monitor_);
  const TenantRef tenant = tenants_.FindKnown(tenant_name);
  if (tenant == nullptr || !tenant->history.is_kept()) {
    return;
  }
  const auto forgotten = std::make_shared<std::deque<JobHistory::Entry>>(tenant->history.Forget());
  tenant->history.Keep();
  watchers_.Tell(scope, tenant, Watchers::kJobs);
  scope.Defer([forgotten] {});  // Destroyed without the mutex.
}

std::vector<std::string> JobClaims::Followed(const std::string& tenant_name) {
  CoreScope scope(monitor_);
  std::vector<std::string> ids;
  if (const TenantRef tenant = tenants_.FindKnown(tenant_name); tenant != nullptr) {
    for (const auto& [id, followed] : tenant->followed) {
      ids.push_back(id);
    }
  }
  return ids;
}

void JobLifecycle::GiveBack(CoreScope& scope, const ExecutionRef& job) {
  if (job->phase == Execution::Phase::kQueued) {
    Unqueue(scope, job);
  }
  if (job->phase == Execution::Phase::kWaiting && !job->stored->writing) {
    job->phase = Execution::Phase::kEnding;
    ChangeRow(scope, job, job->stored->row, /*with_results=*/false, &JobLifecycle::OnPutBack);
  } else if (job->stored->attempt != nullptr && job->phase < Execution::Phase::kStoring) {
    job->stored->attempt->broken_off = true;
    runs_.StopRun(scope, job, Unavailable("The host gave the job back."));
  } else if (job->phase == Execution::Phase::kStarting || job->phase == Execution::Phase::kWaiting) {
    monitor_.AddTimer(scope, options_.clock->Now() + kGiveBackAgain, [this, job](CoreScope& inner) {
      const auto found = job->tenant->jobs.find(job->shown().id());
      if (found != job->tenant->jobs.end() && found->second == job) {
        GiveBack(inner, job);
      }
    });
  }
}

void JobLifecycle::Abandon(CoreScope& scope, const ExecutionRef& job, const Status& why) {
  if (!job->stored->writing) {
    GiveUp(scope, job, why);
  }
}

}  // namespace hpvm::server
