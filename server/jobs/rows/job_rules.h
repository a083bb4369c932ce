// SPDX-License-Identifier: Apache-2.0
// The rules that every JobDatabase follows, as pure functions: which writes are taken, and what a dropped job keeps.
#ifndef HPVMD_SERVER_JOBS_ROWS_JOB_RULES_H_
#define HPVMD_SERVER_JOBS_ROWS_JOB_RULES_H_

#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Returns the tenant of the write; "": all. The view lives as long as the write.
std::string_view TenantOf(const JobWrite& write);

// Returns kInvalidArgument for a write that no caller of ours makes.
Status CheckInsert(const InsertJobs& insert);

struct PresentJob {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  uint32_t attempt = 0;
  uint64_t lease = 0;
  std::string_view array_id;  // Never changes.
};
// Return kFailedPrecondition when the present state is not the expected one, or is terminal.
Status CheckChange(const PresentJob& present, const ChangeJob& change);
Status CheckDrop(v1::JobState present, std::string_view id);

// Returns the fields that an array's elements share, which are stored once (InsertJobs::shared): with the maximum
// number of elements, and the maximum number of labels per job, one request would otherwise write 8 MiB. Tenant and
// array identify the owner.
StoredJob SharedOf(const StoredJob& job);
// Removes the shared fields from a job, as records are stored.
void RemoveShared(StoredJob* job);
// Adds them back. kDataLoss when `shared` is another array's.
Status AddShared(const StoredJob& shared, StoredJob* job);

// Returns the remains of a job whose request, results and blobs are gone.
StoredJob DroppedForm(StoredJob job);

bool MatchesLabels(const StoredJob& job, const JobFilter& filter);
// Returns the job's blobs, each once, in order.
std::vector<Sha256> BlobsOf(const StoredJob& job);
// Returns the hash by which `who` names a blob; kDataLoss unless `raw` is a hash.
StatusOr<Sha256> BlobNamedBy(std::string_view who, std::string_view raw);

Status NoSuchJob(std::string_view id);
Status NoSuchRequest(std::string_view id);
// Does not repeat the key, because keys are secrets of a kind, and bytes from outside.
Status NoSuchKey();
Status KeyIsKnown();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_JOB_RULES_H_
