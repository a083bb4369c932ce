// SPDX-License-Identifier: Apache-2.0
// What an operator does with the folder of a job store (OpenLocalJobStore's), whether its daemon runs or not.
//
// A backup is a folder of the same form: it is restored by copying it to where the daemon looks, while none runs.
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
  // Jobs whose blobs were gone or damaged: in the backup they are dropped, and have ended as FAILED if they had not.
  std::vector<std::string> notes;
};

// Copies the database, as it is at one moment, then what its jobs need; `to` appears whole and synced, or not at all.
// kAlreadyExists, kNotFound, kFailedPrecondition for another version's database, or the disk's error.
StatusOr<JobBackup> BackUpJobs(const std::string& folder, const std::string& to);

// Every fault of the database and of the blobs that its jobs need, in sentences; empty: sound. Reads everything.
StatusOr<std::vector<std::string>> CheckJobs(const std::string& folder);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_JOB_ADMIN_H_
