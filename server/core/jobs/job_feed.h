// SPDX-License-Identifier: Apache-2.0
// How live jobs look to clients, and the events that those see who watch them.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_FEED_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_FEED_H_

#include <deque>
#include <string>
#include <utility>

#include "hpvm/v1/job.pb.h"
#include "server/core/jobs/job_table.h"
#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/quotas.h"
#include "server/core/state/core_context.h"
#include "server/core/state/live_job.h"
#include "server/core/state/run_op.h"

namespace hpvm {

class JobFeed : private CoreRoom {
 public:
  JobFeed(CoreContext& context, Quotas& quotas, Arbiter& arbiter, JobTable& table)
      : CoreRoom(context), quotas_(quotas), arbiter_(arbiter), table_(table) {}

  // --- For other rooms, with the mutex ---
  // Drops the events of a job that is no longer stored.
  void ForgetRecent(Tenant& tenant, const std::string& id);
  JobEvents& EventsOf(LiveJob& job);
  void AddStateEvent(CoreScope& scope, LiveJob& job);
  void AddRunEvents(CoreScope& scope, LiveJob& job, const RunOutcome& outcome);
  void KeepRecent(LiveJob& job);
  v1::Job Describe(const LiveJob& job) const;

 private:
  void AddEvent(CoreScope& scope, JobEvents& events, v1::JobEvent event);
  std::string WaitSentenceOf(const LiveJob& job) const;
  std::string TurnSentenceOf(const Tenant& tenant) const;
  std::string RoomSentenceOf(const LiveJob& job) const;

  Quotas& quotas_;
  Arbiter& arbiter_;
  JobTable& table_;
  std::deque<std::pair<Tenant*, std::string>> recent_;  // Ended jobs with events, the oldest first.
  size_t recent_events_ = 0;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_FEED_H_
