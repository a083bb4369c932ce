// SPDX-License-Identifier: Apache-2.0
// What an idempotency key stands for.
#ifndef HPVMD_SERVER_JOBS_ROWS_REQUEST_HASH_H_
#define HPVMD_SERVER_JOBS_ROWS_REQUEST_HASH_H_

#include "base/hash.h"
#include "hpvm/v1/job.pb.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Of everything that decides what the job does: the graph and its modules by contents, inputs by name, type, shape
// and bytes (a buffer's as the stored request has them, so that a client may come back with the same data in another
// buffer; but one that the job writes too by its id), outputs, symbols, repeat, name, dependencies, array and retries.
// Options (trace, deadline, priority, labels) are not part of it, nor is the order of modules, inputs, outputs and
// dependencies.
Sha256 HashOfRequest(const StoredRequest& stored);
// Of a RetryJob.
Sha256 HashOfRetry(const std::string& job_id);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_REQUEST_HASH_H_
