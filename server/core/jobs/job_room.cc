// SPDX-License-Identifier: Apache-2.0
// Conditions under which no job is started: a disk without room, where the remaining space is for running jobs; a
// disabled tenant; a server that an administrator has closed; closed devices.
#include <vector>

#include "server/core/jobs/job_lifecycle.h"
#include "server/process/log.h"

namespace hpvm::server {

// Fails runs, breaks off attempts without counting them, and keeps jobs waiting until the tenant is enabled.
void JobLifecycle::Suspend(CoreScope& scope, const TenantRef& tenant) {
  LogInfo("Tenant disabled", {{"tenant", tenant->name}, {"reason", tenant->policy->disabled_reason}});
  const auto suspend = [this](CoreScope& inner, const ExecutionRef& job) {
    if (options_.shared != nullptr) {
      GiveBack(inner, job);
      return;
    }
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

bool JobLifecycle::AwaitsDevices(const Execution& job) const {
  return !devices_.table().WhyAllClosed(job.stored->row.needs()).empty();
}

void JobLifecycle::OnDevices(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_.all()) {
    table_.EachLive(scope, tenant, [this](CoreScope& inner, const ExecutionRef& job) {
      if (AwaitsDevices(*job)) {
        LeaveQueue(inner, job);
      } else {
        Settle(inner, job);
      }
    });
  }
}

void JobLifecycle::EnterQueues(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_.all()) {
    table_.EachLive(scope, tenant, [this](CoreScope& inner, const ExecutionRef& job) { Settle(inner, job); });
  }
}

// A job whose turn comes before it has left the queue gives the turn back.
void JobLifecycle::LeaveQueues(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_.all()) {
    table_.EachLive(scope, tenant, [this](CoreScope& inner, const ExecutionRef& job) { LeaveQueue(inner, job); });
  }
}

}  // namespace hpvm::server
