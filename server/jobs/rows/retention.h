// SPDX-License-Identifier: Apache-2.0
// Which finished jobs go, and when: by age and number whole rows, by bytes only what they hold.
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

// Of one tenant, except the keys'.
struct RetentionLimits {
  uint64_t kept_max = 0;
  uint64_t kept_ms = 0;
  uint64_t kept_bytes_max = 0;
  // An idempotency key is known at least so long after its job was made, and as long as the job's row is there.
  uint64_t key_ms = 86'400'000;
};

// A job whose row must stay, for example because a waiting job comes after it.
using IsNeeded = std::function<bool(std::string_view tenant, std::string_view id)>;

// For one tenant, whose finished jobs are `use`.jobs - .live: forgets those that ended longer than kept_ms ago, and the
// oldest beyond kept_max; of the others drops what the oldest hold until kept_bytes_max is not passed. `oldest` are the
// oldest finished ones, `undropped` the oldest of those that still hold something. At most `writes_max` writes.
std::vector<JobWrite> PlanRetention(const TenantUse& use, std::span<const FinishedJob> oldest,
                                    std::span<const FinishedJob> undropped, const RetentionLimits& limits,
                                    int64_t now_unix_ns, size_t writes_max, const IsNeeded& is_needed);

// For every tenant, and the keys (always the first write): at most `writes_max` writes, each good by itself.
// Called every few seconds; when it answers as many as it may there is more to do. What a dropped job still holds is
// counted by the next call. Any thread.
StatusOr<std::vector<JobWrite>> PlanRetention(JobDatabase& database, const RetentionLimits& limits, int64_t now_unix_ns,
                                              size_t writes_max, const IsNeeded& is_needed);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_RETENTION_H_
