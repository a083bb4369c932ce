// SPDX-License-Identifier: Apache-2.0
// Submission is one Submit or RetryJob until its answer.
#ifndef HPVMD_SERVER_CORE_JOBS_SUBMISSION_H_
#define HPVMD_SERVER_CORE_JOBS_SUBMISSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/core/jobs/job_table.h"
#include "server/core/jobs/submit_batch.h"

namespace hpvm::server {

// Accessed by one thread at a time: the caller's, then the executor link's, then the store's.
struct Submission {
  TenantRef tenant;
  const v1::SubmitRequest* request = nullptr;  // Borrowed from the caller until `done`; null: a retry.
  v1::SubmitResponse* response = nullptr;      // Borrowed from the caller until `done`.
  std::function<void(const Outcome&)> done;
  // The batch with whose rows its own are written; null: none, or the rows are decided.
  std::shared_ptr<SubmitBatch> batch;
  std::string who;                 // The submitter, as named in the audit.
  bool is_brief = false;           // The answer has only a few fields of the job.
  std::string key;                 // The idempotency key; empty: none.
  bool holds_key = false;          // Duplicates wait for this submission.
  std::optional<KeyRecord> known;  // The key is known: only the requests are left to compare.
  uint64_t count = 0;              // Number of jobs for which it was admitted.
  scheduler::Lease queued;         // Lease for as many queued jobs.
  scheduler::Lease disk_bytes;     // Disk space for the data that its rows will name.
  PreparationRef preparation;      // Null when no graph has to be prepared: for known keys and retries.

  StoredRequest stored;
  Sha256 hash;    // Set when there is a key.
  StoredJob row;  // The fields that all of its jobs have.
  // The fields that the jobs of an array share, set from the first job on; `row` then lacks them.
  std::shared_ptr<const StoredJob> shared;
  Time received{0};
  std::vector<BlobInput> blobs;  // The graph, its modules, then inputs as in `stored`, then the request.
  bool puts_graph = false;       // `blobs` includes the graph and its modules.
  bool puts_request = false;     // `blobs` ends with the request.
  std::vector<BlobPinRef> pins;
  JobTable::StoredUnits units;  // The ended units among those that the jobs depend on.
  int unit_reads = 0;           // Number of times that the store was read for them.

  // The id of the array, or of the one job, under which the submission waits in the place of its jobs: from the moment
  // at which the states of all dependencies are known, until all of the jobs live.
  std::string waits_as;
  std::optional<v1::JobDependency> failed_dependency;  // A dependency that can no longer be met.
  std::vector<ExecutionRef> jobs;
  InsertJobs insert;  // Rows of the jobs, until they are sent to the store.
  size_t joined = 0;  // Number of `jobs` that live.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_SUBMISSION_H_
