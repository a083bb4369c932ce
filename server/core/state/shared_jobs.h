// SPDX-License-Identifier: Apache-2.0
// SharedJobs is what the core asks of a job store that several hosts share, in addition to JobStore.
//
// With such a store, a job that was submitted is not the core's: the store gives each job to a host later, perhaps to
// this one, whose core then takes it (JobClaims). So the core holds only the jobs that this host has claimed, and reads
// all others from the store.
#ifndef HPVMD_SERVER_CORE_STATE_SHARED_JOBS_H_
#define HPVMD_SERVER_CORE_STATE_SHARED_JOBS_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "hpvm/v1/job.pb.h"
#include "proto/internal/stored_job.pb.h"

namespace hpvm::server {

// Thread-safe; calls never block and never call back before they return.
class SharedJobs {
 public:
  virtual ~SharedJobs() = default;
  // Receives the job as the store has it after the call.
  using Done = std::function<void(StatusOr<internal::StoredJob>)>;

  // Ends a waiting job; asks the host that runs it to end a running one. kNotFound.
  virtual void Cancel(std::string tenant, std::string id, Done done) = 0;
  // Holds a waiting job, or releases it. kFailedPrecondition: it runs, or has ended. kNotFound.
  virtual void SetHold(std::string tenant, std::string id, bool is_held, const v1::JobHold& hold, Done done) = 0;

  // The tenant's policy has changed, or the tenant is new: its limits in the store follow.
  virtual void OnPolicyChanged(std::string tenant) = 0;

  // A client of this host watches the tenant's jobs (`watches`), or none does any more: until then changes of jobs
  // that other hosts run are reported to JobClaims::Tell.
  virtual void SetWatched(std::string tenant, bool is_watched) = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_SHARED_JOBS_H_
