// SPDX-License-Identifier: Apache-2.0
// What every JobDatabase does alike, as pure functions: which writes are taken, and what a dropped job keeps.
#ifndef HPVMD_SERVER_JOBS_ROWS_JOB_RULES_H_
#define HPVMD_SERVER_JOBS_ROWS_JOB_RULES_H_

#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Whose the write is; "": of all. Lives as long as the write.
std::string_view TenantOf(const JobWrite& write);

// kInvalidArgument for a write that no caller of ours makes.
Status CheckInsert(const InsertJobs& insert);

struct PresentJob {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  uint32_t attempt = 0;
  uint64_t lease = 0;
  std::string_view array_id;  // Never changes.
};
// kFailedPrecondition when the present state is not the expected one, or is terminal.
Status CheckChange(const PresentJob& present, const ChangeJob& change);
Status CheckDrop(v1::JobState present, std::string_view id);

// What an array's elements share is kept once (InsertJobs::shared): as many elements as an array may have, with as many
// labels as a job may have, would be 8 MiB to write for one request. The tenant and array tell whose it is.
StoredJob SharedOf(const StoredJob& job);
// The rest of it, as a record has it.
void RemoveShared(StoredJob* job);
// The opposite. kDataLoss when `shared` is another array's.
Status AddShared(const StoredJob& shared, StoredJob* job);

// What stays of a job whose request, results and blobs are gone.
StoredJob DroppedForm(StoredJob job);

bool MatchesLabels(const StoredJob& job, const JobFilter& filter);
// The job's blobs, each once, in order.
std::vector<Sha256> BlobsOf(const StoredJob& job);
// What `who` names a blob by; kDataLoss unless that is a hash.
StatusOr<Sha256> BlobNamedBy(std::string_view who, std::string_view raw);

Status NoSuchJob(std::string_view id);
Status NoSuchRequest(std::string_view id);
// Keys are not repeated: they are secrets of a kind, and bytes from outside.
Status NoSuchKey();
Status KeyIsKnown();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_JOB_RULES_H_
