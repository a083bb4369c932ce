// SPDX-License-Identifier: Apache-2.0
// Random writes for job databases, from a seed: a daemon's writes, in any order, with mistakes among them.
#ifndef HPVMD_SERVER_JOBS_TESTING_JOB_WRITES_H_
#define HPVMD_SERVER_JOBS_TESTING_JOB_WRITES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Returns a job of about 600 bytes, ACCEPTED.
StoredJob MakeStoredJob(std::string_view tenant, std::string_view id, int64_t created_unix_ns);
// Returns a request of about 400 bytes.
std::string MakeStoredRequest(std::string_view name);
InsertJobs MakeInsert(std::string_view tenant, std::string_view id, std::string_view key, int64_t created_unix_ns);
// Separates the shared fields of an array's elements, with more labels for all.
void ShareInArray(InsertJobs* insert);
// Returns the job's next state, expecting the present one.
ChangeJob MakeChange(const StoredJob& present, v1::JobState state);
internal::StoredBlob MakeStoredBlob(uint64_t number);
Sha256 BlobHash(uint64_t number);

class JobWriteGenerator {
 public:
  explicit JobWriteGenerator(uint64_t seed) : rng_(seed) {}

  // Returns a write about the jobs in `database`; one in a few expects a wrong state.
  JobWrite Next(JobDatabase& database);

  static const std::vector<std::string>& Tenants();
  std::string AnyId();
  std::string AnyKey();
  Rng& rng() { return rng_; }

 private:
  JobWrite NextInsert();
  JobWrite NextChange(JobDatabase& database);
  void AddBlobs(StoredJob* job);

  SeededRng rng_;
  uint64_t made_ = 0;
  int64_t now_unix_ns_ = 1'700'000'000'000'000'000;
  std::vector<std::pair<std::string, std::string>> jobs_;  // Tenant, id.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_TESTING_JOB_WRITES_H_
