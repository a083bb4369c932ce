// SPDX-License-Identifier: Apache-2.0
// Where jobs are kept. One interface, so that a database can stand behind it; MemoryJobStore keeps them while the
// daemon lives.
//
// A terminal state is written once: every change of state names the state it expects to leave, and a mismatch changes
// nothing.
#ifndef HPVMD_SERVER_JOB_STORE_H_
#define HPVMD_SERVER_JOB_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "hpvm/v1/job.pb.h"

namespace hpvm {

struct JobRecord {
  std::string tenant;
  uint64_t sequence = 0;         // Grows with each job of the store; set by Insert.
  std::string idempotency_key;   // Empty: none.
  Sha256 request_hash;           // Of everything in the request that the key stands for.
  v1::Job job;                   // As clients see it.
  // Shared with the run, which borrows its tensors; let go of when the job ends.
  std::shared_ptr<const v1::SubmitRequest> request;
};

bool IsTerminal(v1::JobState state);

struct JobFilter {
  uint64_t before_sequence = UINT64_MAX;   // Only older jobs.
  std::vector<v1::JobState> states;        // Empty: all.
  std::map<std::string, std::string> labels;
  size_t count_max = 100;
};

struct JobLimits {
  uint64_t kept_max = 10'000;    // A tenant's finished jobs.
  uint64_t kept_ns = 86'400'000'000'000;
};

// Guarded by the core's mutex, except WhenDurable. Pointers are valid until the next change.
class JobStore {
 public:
  virtual ~JobStore() = default;
  // The job can be found at once. kAlreadyExists when the tenant's key is in use; the job's id is the caller's and
  // must be new.
  virtual Status Insert(JobRecord record) = 0;
  // Calls `done` once everything inserted and changed so far is as durable as this store makes it; perhaps before it
  // returns, perhaps from another thread. Not under the core's mutex.
  virtual void WhenDurable(std::function<void(const Status&)> done) = 0;
  virtual const JobRecord* Find(std::string_view tenant, std::string_view id) const = 0;
  virtual const JobRecord* FindByKey(std::string_view tenant, std::string_view key) const = 0;
  // Applies `change` when the job's state is `from`; kFailedPrecondition otherwise, kNotFound without such a job.
  virtual Status Change(std::string_view tenant, std::string_view id, v1::JobState from,
                        const std::function<void(JobRecord&)>& change) = 0;
  // Newest first.
  virtual std::vector<const JobRecord*> List(std::string_view tenant, const JobFilter& filter) const = 0;
  // Drops finished jobs beyond the limits; answers their ids with their tenants.
  virtual std::vector<std::pair<std::string, std::string>> Expire(const JobLimits& limits, int64_t now_unix_ns) = 0;
};

std::unique_ptr<JobStore> CreateMemoryJobStore();

}  // namespace hpvm

#endif  // HPVMD_SERVER_JOB_STORE_H_
