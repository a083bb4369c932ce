// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_retention.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/jobs/rows/retention.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr Duration kEvery = std::chrono::seconds(10), kSoon = std::chrono::milliseconds(200);
// Number of jobs removed at a time; other writes wait no longer than these take.
constexpr size_t kWritesMax = 256;

}  // namespace

void JobRetention::ScheduleRetention(CoreScope& scope, Duration after) {
  monitor_.AddTimer(scope, options_.clock->Now() + after, [this](CoreScope& inner) {
    if (shutdown_.closed) {
      return;
    }
    const RetentionLimits limits{.kept_max = config_->jobs_kept_max,
                                 .kept_ms = config_->jobs_kept_ms,
                                 .kept_bytes_max = config_->jobs_kept_bytes_max};
    options_.jobs->Post("", [this, limits] {
      const size_t writes = Retain(limits);
      CoreScope scope(monitor_);
      ScheduleRetention(scope, writes >= kWritesMax ? kSoon : kEvery);
      return FairQueue::Step::kDone;
    });
  });
}

// Called on the store's thread, without the mutex, on a full disk too, since it makes room. Returns the number of
// writes to do at once.
size_t JobRetention::Retain(RetentionLimits limits) {
  const int64_t now = options_.clock->WallNs();  // Read before the look: a later jump has no effect.
  if (const std::optional<Duration> by = clock_watch_.Look(); by.has_value()) {
    LogWarning(
        "The clock has jumped: no stored job or key is dropped for its age until the clock has been steady for as long "
        "as finished jobs and keys are kept",
        {{"seconds", std::to_string(by->count() / 1'000'000'000)}});
  }
  for (uint64_t* age_ms : {&limits.kept_ms, &limits.key_ms}) {
    *age_ms = clock_watch_.Believes(*age_ms) ? *age_ms : UINT64_MAX;
  }
  const JobStoreHealth health = options_.jobs->Health();
  if (retaining_ > 0 || (!health.accepts_writes && !health.is_transient)) {
    return health.accepts_writes ? kWritesMax : 0;  // Earlier removals still wait; more of them would wait as well.
  }
  const auto is_needed = [this](std::string_view tenant, std::string_view id) {
    CoreScope scope(monitor_);
    const TenantRef found = tenants_.FindKnown(tenant);
    return found != nullptr && found->dependencies.IsWaitedFor(std::string(id));
  };
  StatusOr<std::vector<JobWrite>> writes = PlanRetention(options_.jobs->database(), limits, now, kWritesMax, is_needed);
  if (const Status planned = HPVMD_FAILPOINT("core.retention.plan"); !planned.ok()) {
    writes = planned;
  }
  if (!writes.ok()) {
    LogWarning("Finished jobs not checked for their age", {{"error", Message(writes.status())}});
    return 0;
  }
  const size_t count = writes->size();
  Write(*std::move(writes));
  return count;
}

void JobRetention::Forget(const std::vector<FinishedJob>& jobs) {
  if (retaining_ > 0) {
    return;
  }
  std::vector<JobWrite> writes;
  for (const FinishedJob& job : jobs) {
    writes.push_back(DropJob{job.tenant, job.id, /*forget=*/true});
  }
  Write(std::move(writes));
}

void JobRetention::Write(std::vector<JobWrite> writes) {
  for (JobWrite& write : writes) {
    const DropJob* drop = std::get_if<DropJob>(&write);
    JobStore::WriteDone done = [this](const WriteResult&) { --retaining_; };
    if (drop != nullptr) {
      done = [this, drop = *drop](const WriteResult& result) {
        --retaining_;
        OnDropped(drop, result);
      };
    }
    CoreScope scope(monitor_);
    if (shutdown_.closed) {
      return;
    }
    ++retaining_;
    options_.jobs->Write(std::move(write), std::move(done));
  }
}

// Reduces the tenant's bytes on disk. Called without the mutex.
void JobRetention::OnDropped(const DropJob& drop, const WriteResult& result) {
  if (!result.status.ok()) {
    return;
  }
  CoreScope scope(monitor_);
  const TenantRef tenant = tenants_.FindKnown(drop.tenant);
  if (tenant == nullptr) {
    return;
  }
  // The remaining row may be larger than what a small job was counted for.
  scheduler::Lease& rows = tenant->stored_rows;
  const int64_t change = result.stored_bytes_change;
  const uint64_t less = change < 0 ? static_cast<uint64_t>(-change) : 0;
  rows.SetAnyway(rows.amount() - std::min(less, rows.amount()) + static_cast<uint64_t>(std::max<int64_t>(change, 0)));
  feed_.ForgetRecent(*tenant, drop.id);
  if (drop.forget) {
    feed_.AddGone(scope, tenant, drop.id);
  }
}

}  // namespace hpvm::server
