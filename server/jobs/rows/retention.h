// SPDX-License-Identifier: Apache-2.0
// Plans which finished jobs are removed, and when: by age and number whole rows, by bytes only the data that they
// hold.
#ifndef HPVMD_SERVER_JOBS_ROWS_RETENTION_H_
#define HPVMD_SERVER_JOBS_ROWS_RETENTION_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Limits for one tenant, except `key_ms`.
struct RetentionLimits {
  uint64_t kept_max = 0;
  uint64_t kept_ms = 0;
  uint64_t kept_bytes_max = 0;
  // An idempotency key is known for at least this time after its job was made, and as long as the job's row exists.
  uint64_t key_ms = 86'400'000;
};

// Returns true for a job whose row must stay, for example because a waiting job depends on it.
using IsNeeded = std::function<bool(std::string_view tenant, std::string_view id)>;

// Plans for one tenant, which has `use`.jobs - .live finished jobs: forgets those that ended longer than kept_ms ago,
// and the oldest beyond kept_max; of the others drops the data of the oldest until kept_bytes_max is not exceeded.
// `oldest` are the oldest finished jobs, `undropped` the oldest of those that still hold data. Returns at most
// `writes_max` writes.
std::vector<JobWrite> PlanRetention(const TenantUse& use, std::span<const FinishedJob> oldest,
                                    std::span<const FinishedJob> undropped, const RetentionLimits& limits,
                                    int64_t now_unix_ns, size_t writes_max, const IsNeeded& is_needed);

// Plans for every tenant, and the keys (always the first write): at most `writes_max` writes, each valid by itself.
// Called every few seconds; when it returns `writes_max` writes, there is more to do. The data that a dropped job
// still holds is counted by the next call. Thread-safe.
StatusOr<std::vector<JobWrite>> PlanRetention(JobDatabase& database, const RetentionLimits& limits, int64_t now_unix_ns,
                                              size_t writes_max, const IsNeeded& is_needed);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_RETENTION_H_
