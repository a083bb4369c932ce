// SPDX-License-Identifier: Apache-2.0
// JobFeed describes live jobs to clients, and records the events for clients that watch them.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_FEED_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_FEED_H_

#include <deque>
#include <map>
#include <string>

#include "hpvm/v1/job.pb.h"
#include "server/core/jobs/job_table.h"
#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/quotas.h"
#include "server/core/rooms/watchers.h"
#include "server/core/state/core_context.h"
#include "server/core/state/execution.h"

namespace hpvm::server {

class JobFeed : private CoreRoom {
 public:
  JobFeed(CoreContext& context, Quotas& quotas, Devices& devices, Arbiter& arbiter, Watchers& watchers, JobTable& table)
      : CoreRoom(context), quotas_(quotas), devices_(devices), arbiter_(arbiter), watchers_(watchers), table_(table) {}

  // --- These lock the mutex ---
  // Keeps the events of a job that another host has, from now on.
  void Follow(Tenant& tenant, const v1::Job& job);
  // Adds an event to such a job.
  void TellFollowed(Tenant& tenant, const v1::Job& job);

  // --- For other rooms; the caller holds the mutex ---
  // Drops the events of a job that is no longer stored.
  void ForgetRecent(Tenant& tenant, const std::string& id);
  JobEvents& EventsOf(Execution& job);
  // Adds an event to the job, and a change to the tenant's jobs (AddChange).
  void AddStateEvent(CoreScope& scope, Execution& job);
  // Adds a change for the clients that watch the tenant's jobs.
  void AddChange(CoreScope& scope, Execution& job);
  // Reports that the job is no longer stored.
  void AddGone(CoreScope& scope, const TenantRef& tenant, const std::string& id);
  void AddRunEvents(CoreScope& scope, Execution& job, const RunOutcome& outcome);
  // Adds the lines that kernels of the attempt have printed since the last call.
  void AddLog(CoreScope& scope, Execution& job, v1::RunLog log);
  void KeepRecent(Execution& job);
  // For a job that another host of the cluster has: reports its change to the clients that watch it, or the tenant's
  // jobs.
  void AddForeign(CoreScope& scope, const TenantRef& tenant, v1::Job job);
  // Tells the shared store whether clients watch jobs of the tenant.
  void TellWatched(const Tenant& tenant);
  // Only administrators are told which administrator holds the job.
  v1::Job Describe(const Execution& job, bool to_admin = false) const;
  // Returns the state that Describe shows.
  static v1::JobState StateOf(const Execution& job);
  // For example "Held by uid 1000: its data is not there yet."; without an administrator's name, as tenants read it.
  static std::string HoldSentence(const v1::JobHold& hold);

 private:
  void AddEvent(CoreScope& scope, JobEvents& events, v1::JobEvent event);
  void AddFollowed(CoreScope& scope, Tenant& tenant, const v1::Job& job);
  void KeepChange(CoreScope& scope, const TenantRef& tenant, v1::JobChange change, v1::JobState before);
  std::string WaitSentenceOf(const Execution& job) const;
  std::string TurnSentenceOf(const Tenant& tenant) const;
  std::string RoomSentenceOf(const Execution& job) const;
  // Returns the tenant whose oldest events are dropped: `newest`, unless that tenant keeps no more than its share.
  Tenant& KeepsMost(Tenant& newest);

  Quotas& quotas_;
  Devices& devices_;
  Arbiter& arbiter_;
  Watchers& watchers_;
  JobTable& table_;
  struct Recent {
    std::deque<std::string> ids;  // Ended jobs with events, the oldest first. Any but the first may be forgotten.
    size_t weight = 0;            // Weight of the events in Tenant::recent.
  };
  std::map<Tenant*, Recent> recent_;  // Tenants that have such events.
  size_t recent_weight_ = 0;          // Sum of the weights.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_FEED_H_
