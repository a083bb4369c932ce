// SPDX-License-Identifier: Apache-2.0
// How live jobs look to clients, and the events that those see who watch them.
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
  JobFeed(CoreContext& context, Quotas& quotas, Arbiter& arbiter, Watchers& watchers, JobTable& table)
      : CoreRoom(context), quotas_(quotas), arbiter_(arbiter), watchers_(watchers), table_(table) {}

  // --- For other rooms, with the mutex ---
  // Drops the events of a job that is no longer stored.
  void ForgetRecent(Tenant& tenant, const std::string& id);
  JobEvents& EventsOf(Execution& job);
  // Of the job, and of the tenant's jobs (AddChange).
  void AddStateEvent(CoreScope& scope, Execution& job);
  // For those who watch the tenant's jobs.
  void AddChange(CoreScope& scope, Execution& job);
  // The job is stored no longer.
  void AddGone(CoreScope& scope, const TenantRef& tenant, const std::string& id);
  void AddRunEvents(CoreScope& scope, Execution& job, const RunOutcome& outcome);
  void KeepRecent(Execution& job);
  v1::Job Describe(const Execution& job) const;
  // The state that it shows there.
  static v1::JobState StateOf(const Execution& job);

 private:
  void AddEvent(CoreScope& scope, JobEvents& events, v1::JobEvent event);
  void KeepChange(CoreScope& scope, const TenantRef& tenant, v1::JobChange change, v1::JobState before);
  std::string WaitSentenceOf(const Execution& job) const;
  std::string TurnSentenceOf(const Tenant& tenant) const;
  std::string RoomSentenceOf(const Execution& job) const;
  // The tenant whose oldest events go: `newest`, unless that keeps no more than its share.
  Tenant& KeepsMost(Tenant& newest);

  Quotas& quotas_;
  Arbiter& arbiter_;
  Watchers& watchers_;
  JobTable& table_;
  struct Recent {
    std::deque<std::string> ids;  // Ended jobs with events, the oldest first. Some may be forgotten, not the first.
    size_t weight = 0;            // Of those in Tenant::recent.
  };
  std::map<Tenant*, Recent> recent_;  // Who has any.
  size_t recent_weight_ = 0;          // The sum.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_FEED_H_
