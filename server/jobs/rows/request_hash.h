// SPDX-License-Identifier: Apache-2.0
// Hashes of requests, which idempotency keys stand for.
#ifndef HPVMD_SERVER_JOBS_ROWS_REQUEST_HASH_H_
#define HPVMD_SERVER_JOBS_ROWS_REQUEST_HASH_H_

#include "base/hash.h"
#include "hpvm/v1/job.pb.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Hashes everything that decides what the job does: the graph and its modules by contents; inputs by name, type, shape
// and bytes (a buffer's as in the stored request, so that a client may send the same data in another buffer; but a
// buffer that the job also writes by its id); outputs, symbols, repeat, name, dependencies, array and retries. Options
// (trace, deadline, priority, labels) are not part of it, nor is the order of modules, inputs, outputs and
// dependencies.
Sha256 HashOfRequest(const StoredRequest& stored);
// Returns the hash of a RetryJob.
Sha256 HashOfRetry(const std::string& job_id);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_REQUEST_HASH_H_
