// SPDX-License-Identifier: Apache-2.0
// What goes of jobs that have ended, and when.
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

  // --- For other rooms, with the mutex ---
  // Looks then for what may go, and from then on again and again.
  void ScheduleRetention(CoreScope& scope, Duration after);

 private:
  size_t Retain(RetentionLimits limits);
  void OnDropped(const DropJob& drop, const WriteResult& result);

  Tenants& tenants_;
  JobFeed& feed_;
  ClockWatch clock_watch_{*options_.clock};  // Only the store's thread uses it.
  std::atomic<size_t> retaining_{0};         // Writes that have no answer yet.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_RETENTION_H_
