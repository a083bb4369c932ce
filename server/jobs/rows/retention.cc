// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/rows/retention.h"

#include <algorithm>
#include <set>
#include <utility>

namespace hpvm::server {
namespace {

// Returns the time `ms` before now, as far as the type allows.
int64_t Before(int64_t now_unix_ns, uint64_t ms) {
  constexpr uint64_t kNsPerMs = 1'000'000;
  const uint64_t ns = ms > INT64_MAX / kNsPerMs ? INT64_MAX : ms * kNsPerMs;
  const int64_t at_least = INT64_MIN + static_cast<int64_t>(ns);
  return now_unix_ns < at_least ? INT64_MIN : now_unix_ns - static_cast<int64_t>(ns);
}

}  // namespace

std::vector<JobWrite> PlanRetention(const TenantUse& use, std::span<const FinishedJob> oldest,
                                    std::span<const FinishedJob> undropped, const RetentionLimits& limits,
                                    int64_t now_unix_ns, size_t writes_max, const IsNeeded& is_needed) {
  std::vector<JobWrite> writes;
  std::set<std::string_view> forgotten;
  const int64_t kept_since = Before(now_unix_ns, limits.kept_ms);
  uint64_t kept = use.jobs - std::min(use.jobs, use.live);
  uint64_t bytes = use.finished_bytes;
  const auto free = [&bytes](const FinishedJob& job) { bytes -= std::min(bytes, job.stored_bytes); };
  for (const FinishedJob& job : oldest) {
    if (writes.size() == writes_max || (job.ended_unix_ns >= kept_since && kept <= limits.kept_max)) {
      break;
    }
    if (is_needed && is_needed(job.tenant, job.id)) {
      continue;
    }
    writes.push_back(DropJob{job.tenant, job.id, true});
    forgotten.insert(job.id);
    --kept;
    free(job);
  }
  for (const FinishedJob& job : undropped) {
    if (writes.size() == writes_max || bytes <= limits.kept_bytes_max) {
      break;
    }
    if (!job.dropped && forgotten.count(job.id) == 0) {
      writes.push_back(DropJob{job.tenant, job.id, false});
      free(job);
    }
  }
  return writes;
}

StatusOr<std::vector<JobWrite>> PlanRetention(JobDatabase& database, const RetentionLimits& limits, int64_t now_unix_ns,
                                              size_t writes_max, const IsNeeded& is_needed) {
  // A few jobs that must stay do not hide the jobs after them.
  constexpr size_t kNeededMax = 1'000;
  std::vector<JobWrite> writes;
  if (writes_max == 0) {
    return writes;
  }
  writes.push_back(ForgetKeys{Before(now_unix_ns, limits.key_ms)});
  HPVMD_ASSIGN_OR_RETURN(const auto uses, database.Use());
  const int64_t kept_since = Before(now_unix_ns, limits.kept_ms);
  for (const auto& [tenant, use] : uses) {
    const size_t room = writes_max - writes.size();
    if (room == 0) {
      break;
    }
    if (use.jobs <= use.live) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(std::vector<FinishedJob> oldest, database.ListFinished(tenant, 1, true));
    const bool any_old = !oldest.empty() && oldest.front().ended_unix_ns < kept_since;
    if (any_old || use.jobs - use.live > limits.kept_max) {
      HPVMD_ASSIGN_OR_RETURN(oldest, database.ListFinished(tenant, room + kNeededMax, true));
    }
    std::vector<FinishedJob> undropped;
    if (use.finished_bytes > limits.kept_bytes_max) {
      HPVMD_ASSIGN_OR_RETURN(undropped, database.ListFinished(tenant, room, false));
    }
    std::vector<JobWrite> more = PlanRetention(use, oldest, undropped, limits, now_unix_ns, room, is_needed);
    std::move(more.begin(), more.end(), std::back_inserter(writes));
  }
  return writes;
}

}  // namespace hpvm::server
