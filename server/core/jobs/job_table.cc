// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_table.h"

#include <algorithm>
#include <utility>

#include "server/core/state/core_snapshot.h"

namespace hpvm::server {

void JobTable::EachLive(CoreScope& scope, const TenantRef& tenant,
                        std::function<void(CoreScope&, const ExecutionRef&)> look,
                        std::function<void(CoreScope&)> done) {
  monitor_.InSlices(
      scope, tenant,
      [tenant, look = std::move(look), done = std::move(done), next = uint64_t{0}](CoreScope& inner) mutable {
        for (int i = 0; i < Monitor::kJobsAtOnce; ++i) {
          const auto found = tenant->by_sequence.lower_bound(next);
          if (found == tenant->by_sequence.end()) {
            if (done) {
              done(inner);
            }
            return true;
          }
          const ExecutionRef job = found->second;
          next = found->first + 1;
          look(inner, job);
        }
        return false;
      });
}

LiveArray* JobTable::ArrayOf(const Execution& job) {
  const auto found = job.tenant->arrays.find(job.shown().array_id());
  return found == job.tenant->arrays.end() ? nullptr : found->second.get();
}

void JobTable::JoinArray(const ExecutionRef& job) {
  const std::string& id = job->shown().array_id();
  if (id.empty()) {
    return;
  }
  std::shared_ptr<LiveArray>& array = job->tenant->arrays[id];
  if (array == nullptr) {
    array = std::make_shared<LiveArray>();
    array->running_max = job->stored->row.array_running_max();
  }
  array->live.emplace(job->stored->row.sequence(), job);
  array->joining -= std::min<uint64_t>(array->joining, 1);
}

void JobTable::AddQueued(const ExecutionRef& job) {
  queued_jobs_.emplace(job->key, job);
  ++job->tenant->queued_jobs[PriorityClass(job->priority)];
}

void JobTable::RemoveQueued(const Execution& job) {
  --job.tenant->queued_jobs[PriorityClass(job.priority)];
  queued_jobs_.erase(job.key);
}

ExecutionRef JobTable::FindQueued(scheduler::JobKey key) const {
  const auto found = queued_jobs_.find(key);
  return found == queued_jobs_.end() ? nullptr : found->second;
}

std::optional<StoredUnit> JobTable::StateOfUnit(const Tenant& tenant, const std::string& id,
                                                const StoredUnits& units) const {
  if (tenant.jobs.contains(id)) {
    return StoredUnit{.state = {.live = 1}};
  }
  if (const auto found = tenant.arrays.find(id); found != tenant.arrays.end()) {
    const LiveArray& array = *found->second;
    const UnitState state = array.State();
    return StoredUnit{.state = state, .size = state.live + state.succeeded + state.failed + array.missing};
  }
  if (const auto stored = units.find(id);
      stored != units.end() && (stored->second.state.live == 0 || options_.shared != nullptr)) {
    return stored->second;  // A shared store settles by itself what ends meanwhile.
  }
  return std::nullopt;  // Not read yet, or it has ended since.
}

// A dependency on a unit whose state is unknown counts as one that cannot be met.
JobTable::Waits JobTable::JudgeUnits(const Tenant& tenant, const std::vector<v1::JobDependency>& after,
                                     const StoredUnits& units) const {
  Waits waits;
  for (const v1::JobDependency& dependency : after) {
    const std::optional<StoredUnit> unit = StateOfUnit(tenant, dependency.job_id(), units);
    const Verdict verdict = unit.has_value() ? Judge(dependency.condition(), unit->state) : Verdict::kNever;
    if (verdict == Verdict::kPending) {
      waits.pending.push_back(dependency);
    } else if (verdict == Verdict::kNever && !waits.failed.has_value()) {
      waits.failed = dependency;
    }
  }
  return waits;
}

void JobTable::AddWaits(Tenant& tenant, Execution& job, const Waits& waits) {
  job.stored->failed_dependency = waits.failed;
  tenant.dependencies.Add(job.shown().id(), waits.pending);
}

// Adds the job, which is on disk, to those that have not ended.
void JobTable::AddLive(const ExecutionRef& job) {
  job->tenant->jobs.emplace(job->shown().id(), job);
  job->tenant->by_sequence.emplace(job->stored->row.sequence(), job);
  JoinArray(job);
}

void JobTable::SetRunning(Execution& job, bool runs) {
  if (std::exchange(job.stored->counted_running, runs) != runs) {
    running += runs ? 1 : -1;
  }
}

void JobTable::SetWaiting(Execution& job, bool waits) {
  if ((job.stored->queued.amount() > 0) == waits) {
    return;
  }
  job.stored->queued = waits ? job.tenant->account.TakeAnyway(scheduler::Resource::kQueuedJobs, 1) : scheduler::Lease();
  waiting += waits ? 1 : -1;
}

Execution* JobTable::FindLive(Tenant& tenant, std::string_view id) {
  const auto found = tenant.jobs.find(std::string(id));
  return found == tenant.jobs.end() ? nullptr : found->second.get();
}

Status JobTable::RefuseWithoutRoom() const {
  return has_room ? absl::OkStatus()
                  : ResourceExhausted("The server's disk is full: it accepts no jobs until there is room.");
}

}  // namespace hpvm::server
