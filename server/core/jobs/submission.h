// SPDX-License-Identifier: Apache-2.0
// One Submit or RetryJob until its answer.
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

// Touched by one thread at a time: the caller's, then the executor link's, then the store's.
struct Submission {
  TenantRef tenant;
  const v1::SubmitRequest* request = nullptr;  // The caller's, until `done`; null: a retry.
  v1::SubmitResponse* response = nullptr;      // The caller's, until `done`.
  std::function<void(const Outcome&)> done;
  std::shared_ptr<SubmitBatch> batch;  // Whose rows its own go with, until they do or it is answered; null: none's.
  bool is_brief = false;               // Its answer has little of the job.
  std::string key;                     // The idempotency key; empty: none.
  bool holds_key = false;              // Duplicates wait for it.
  std::optional<KeyRecord> known;      // The key is known: all that is left is to compare the requests.
  uint64_t count = 0;                  // Jobs that it was admitted for.
  scheduler::Lease queued;             // Of as many.
  scheduler::Lease disk_bytes;         // Of what its rows will name.
  PreparationRef preparation;          // Null when a graph need not be prepared: of known keys and retries.

  StoredRequest stored;
  Sha256 hash;    // When there is a key.
  StoredJob row;  // What all of its jobs have.
  // The jobs of an array share this, from the first on; `row` is without it then.
  std::shared_ptr<const StoredJob> shared;
  Time received{0};
  std::vector<BlobInput> blobs;  // The graph, its modules, then inputs as `stored` has them, then the request.
  bool puts_graph = false;       // The graph and its modules are among what is on its way to the disk.
  bool puts_request = false;     // The request too, as the last.
  std::vector<BlobPinRef> pins;
  JobTable::StoredUnits units;  // What the jobs come after, as far as it has ended.
  int unit_reads = 0;           // How often the store was asked for it.

  // From the moment at which it is known how everything stands that the jobs come after, until all of them live, this
  // waits in their place: the id of the array, or of the one job.
  std::string waits_as;
  std::optional<v1::JobDependency> failed_dependency;  // What it waits for can no longer come true.
  std::vector<ExecutionRef> jobs;
  InsertJobs insert;  // Their rows, until they are sent to the store.
  size_t joined = 0;  // How many of `jobs` live.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_SUBMISSION_H_
