// SPDX-License-Identifier: Apache-2.0
// JobClaims takes the jobs that this host has claimed from a store that hosts share, and reports changes of the jobs
// that other hosts have (server/core/state/shared_jobs.h).
//
// A claimed job runs as one of the core's. Its end, or its return to the store, is a JobStore::Write like any other;
// the core then forgets the job.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_CLAIMS_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_CLAIMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "hpvm/v1/job.pb.h"
#include "server/core/jobs/job_feed.h"
#include "server/core/jobs/job_lifecycle.h"
#include "server/core/jobs/job_table.h"
#include "server/core/rooms/tenants.h"
#include "server/core/rooms/watchers.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

class JobClaims : private CoreRoom {
 public:
  enum class StopReason : uint8_t {
    kCancelled,
    kExpired,    // Its deadline has passed.
    kGivenBack,  // It goes back to the store, without having spent the attempt.
    kLost,       // It is another host's: its end will not be recorded.
  };

  JobClaims(CoreContext& context, Tenants& tenants, Watchers& watchers, JobTable& table, JobFeed& feed,
            JobLifecycle& lifecycle)
      : CoreRoom(context), tenants_(tenants), watchers_(watchers), table_(table), feed_(feed), lifecycle_(lifecycle) {}

  // --- For the store; these lock the mutex ---
  // Takes the job, whose row is complete and ACCEPTED, with the numbers of the attempts before this one.
  // kFailedPrecondition: the core still has an earlier claim of it, or has stopped.
  Status Take(StoredJob row);
  // Returns false when the core does not have the job (any more).
  bool Stop(const std::string& tenant, const std::string& id, StopReason why);
  // Reports a job that another host has, or that none has, as it is now.
  void Tell(const std::string& tenant, v1::Job job);
  // Changes may have been missed: clients that watch the tenant's jobs read a list again.
  void TellGap(const std::string& tenant);
  // Returns the ids of the tenant's jobs that other hosts have and clients watch.
  std::vector<std::string> Followed(const std::string& tenant);

 private:
  Tenants& tenants_;
  Watchers& watchers_;
  JobTable& table_;
  JobFeed& feed_;
  JobLifecycle& lifecycle_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_CLAIMS_H_
