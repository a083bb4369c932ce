// SPDX-License-Identifier: Apache-2.0
// JobRetention removes jobs that have ended from the store, by age and by limits.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_RETENTION_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_RETENTION_H_

#include <atomic>

#include "server/core/jobs/job_feed.h"
#include "server/core/rooms/tenants.h"
#include "server/core/state/core_context.h"
#include "server/jobs/clock_watch.h"
#include "server/jobs/rows/retention.h"

namespace hpvm::server {

class JobRetention : private CoreRoom {
 public:
  JobRetention(CoreContext& context, Tenants& tenants, JobFeed& feed)
      : CoreRoom(context), tenants_(tenants), feed_(feed) {}

  // --- For other rooms; the caller holds the mutex ---
  // Looks for jobs to remove after `after`, and periodically from then on.
  void ScheduleRetention(CoreScope& scope, Duration after);

  // --- On the store's threads, without the mutex ---
  // Removes ended jobs from the store. Has no effect while earlier writes wait, as on a full disk: the caller tries
  // again.
  void Forget(const std::vector<FinishedJob>& jobs);

 private:
  size_t Retain(RetentionLimits limits);
  void Write(std::vector<JobWrite> writes);
  void OnDropped(const DropJob& drop, const WriteResult& result);

  Tenants& tenants_;
  JobFeed& feed_;
  ClockWatch clock_watch_{*options_.clock};  // Used by the store's thread only.
  std::atomic<size_t> retaining_{0};         // Number of writes without an answer yet.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_RETENTION_H_
