// SPDX-License-Identifier: Apache-2.0
// When no job is started: a disk without room, whose rest goes to those that run; a tenant that is disabled; a server
// that an administrator has closed.
#include <vector>

#include "server/core/jobs/job_lifecycle.h"
#include "server/process/log.h"

namespace hpvm::server {

// Runs fail, attempts are broken off without having counted, and jobs wait until the tenant is enabled.
void JobLifecycle::Suspend(CoreScope& scope, const TenantRef& tenant) {
  LogInfo("Tenant disabled", {{"tenant", tenant->name}, {"reason", tenant->policy->disabled_reason}});
  const auto suspend = [this](CoreScope& inner, const ExecutionRef& job) {
    LeaveQueue(inner, job);
    if (job->stored->attempt != nullptr && job->phase < Execution::Phase::kStoring) {
      job->stored->attempt->broken_off = true;
    }
  };
  table_.EachLive(scope, tenant, suspend, [this, tenant, why = Tenants::RefuseTenant(*tenant)](CoreScope& inner) {
    runs_.StopRuns(inner, tenant, why);
  });
}

void JobLifecycle::OnRoom(bool has_room) {
  CoreScope scope(monitor_);
  if (shutdown_.closed || table_.has_room == has_room) {
    return;
  }
  table_.has_room = has_room;
  if (!has_room) {
    LeaveQueues(scope);
    return;
  }
  EnterQueues(scope);
}

void JobLifecycle::OnIntake(CoreScope& scope) {
  if (shutdown_.MayStartJobs()) {
    EnterQueues(scope);
  } else {
    LeaveQueues(scope);
  }
}

void JobLifecycle::EnterQueues(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_.all()) {
    table_.EachLive(scope, tenant, [this](CoreScope& inner, const ExecutionRef& job) { Settle(inner, job); });
  }
}

// A job whose turn comes before it has left gives the turn back.
void JobLifecycle::LeaveQueues(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_.all()) {
    table_.EachLive(scope, tenant, [this](CoreScope& inner, const ExecutionRef& job) { LeaveQueue(inner, job); });
  }
}

}  // namespace hpvm::server
