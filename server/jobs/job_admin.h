// SPDX-License-Identifier: Apache-2.0
// Operations of an operator on the folder of a job store (see OpenLocalJobStore), whether its daemon runs or not.
//
// A backup is a folder of the same form: it is restored by copying it to the daemon's folder while no daemon runs.
#ifndef HPVMD_SERVER_JOBS_JOB_ADMIN_H_
#define HPVMD_SERVER_JOBS_JOB_ADMIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm::server {

struct JobBackup {
  uint64_t jobs = 0;
  uint64_t blobs = 0;
  uint64_t blob_bytes = 0;
  // Jobs whose blobs were gone or damaged: in the backup they are dropped, and have ended as FAILED if they had not
  // ended.
  std::vector<std::string> notes;
};

// Copies the database, as of one moment, then the blobs that its jobs need; `to` appears complete and synced, or not
// at all. kAlreadyExists, kNotFound, kFailedPrecondition for another version's database, or the disk's error.
StatusOr<JobBackup> BackUpJobs(const std::string& folder, const std::string& to);

// Gives the jobs, files and idempotency keys of `tenant` the tenant name `name`; no daemon may run. A call after an
// interruption continues. Returns the number of jobs. kAlreadyExists when both tenants have some.
StatusOr<uint64_t> RenameTenantJobs(const std::string& folder, const std::string& tenant, const std::string& name);

// Returns every fault of the database and of the blobs that its jobs need, in sentences; empty when it is sound. Reads
// everything.
StatusOr<std::vector<std::string>> CheckJobs(const std::string& folder);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_JOB_ADMIN_H_
