// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "server/cluster/sql/cluster_calls.h"

namespace hpvm::server::cluster {
namespace {

using Key = std::pair<std::string, std::string>;  // Tenant and id.

constexpr SqlStatement kFindKey{"SELECT id, request FROM cluster_jobs WHERE tenant = ?1 AND idempotency_key = ?2"};
constexpr SqlStatement kAddWait{"INSERT INTO cluster_waits(tenant, job, waiter, condition) VALUES(?1, ?2, ?3, ?4)"};
constexpr SqlStatement kCountDependent{
    "UPDATE cluster_jobs SET dependents = dependents + 1 WHERE tenant = ?1 AND id = ?2"};
constexpr SqlStatement kCountEvents{"SELECT events FROM cluster_tenants WHERE tenant = ?1"};
constexpr SqlStatement kListEvents{
    "SELECT number, id, state, fence FROM cluster_events WHERE tenant = ?1 AND number > ?2 AND number <= ?3 "
    "ORDER BY number LIMIT ?4"};

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

const std::string& KeyOf(const NewJob& job) { return job.idempotency_key.empty() ? job.id : job.idempotency_key; }

// Returns the id of the tenant's job with that key; nullopt: none. kFailedPrecondition: it has another request.
StatusOr<std::optional<std::string>> FindKey(ClusterTransaction& transaction, const NewJob& job) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kFindKey, {job.tenant, KeyOf(job)}));
  if (rows.empty()) {
    return std::optional<std::string>();
  }
  if (rows[0].Blob(1) != job.request) {
    return FailedPrecondition("The key " + Quoted(KeyOf(job)) + " was used for another request.");
  }
  return std::optional<std::string>(rows[0].Text(0));
}

// Checks a job whose key is new.
Status CheckNew(ClusterTransaction& transaction, const NewJob& job, const std::set<Key>& batch, uint64_t added) {
  HPVMD_ASSIGN_OR_RETURN(const TenantRow* const tenant, transaction.LockTenant(job.tenant));
  if (tenant->limits.is_disabled) {
    return FailedPrecondition("The tenant " + Quoted(job.tenant) + " is disabled.");
  }
  for (const Dependency& dependency : job.after) {
    if (!batch.contains({job.tenant, dependency.job})) {
      HPVMD_ASSIGN_OR_RETURN(const std::optional<JobRow> on, transaction.FindJob(job.tenant, dependency.job));
      if (!on.has_value()) {
        return InvalidArgument("The tenant has no job " + Quoted(dependency.job) + " to come after.");
      }
    }
  }
  if (tenant->waiting + added > tenant->limits.waiting_max) {
    return ResourceExhausted("The tenant " + Quoted(job.tenant) + " has " + std::to_string(tenant->waiting) +
                             " waiting jobs; the limit is " + std::to_string(tenant->limits.waiting_max) + ".");
  }
  return absl::OkStatus();
}

Status CheckBatch(ClusterTransaction& transaction, const std::vector<NewJob>& jobs) {
  std::set<Key> batch;
  std::map<std::string, uint64_t> added;
  for (const NewJob& job : jobs) {
    batch.emplace(job.tenant, job.id);
    added[job.tenant] = 0;
  }
  for (const auto& [name, count] : added) {  // Sorted, as LockTenant asks.
    HPVMD_RETURN_IF_ERROR(transaction.LockTenant(name).status());
  }
  for (const NewJob& job : jobs) {
    HPVMD_ASSIGN_OR_RETURN(const std::optional<std::string> known, FindKey(transaction, job));
    if (!known.has_value()) {
      HPVMD_RETURN_IF_ERROR(CheckNew(transaction, job, batch, ++added[job.tenant]));
    }
  }
  return absl::OkStatus();
}

struct Inserted {
  std::string id;             // The job's, which may be another one's with the same key.
  bool cannot_start = false;  // A job that it comes after has ended otherwise than required.
  std::vector<std::string> waits_for;
};

StatusOr<Inserted> Insert(ClusterTransaction& transaction, const NewJob& job) {
  HPVMD_ASSIGN_OR_RETURN(std::optional<std::string> known, FindKey(transaction, job));
  if (known.has_value()) {
    return Inserted{.id = *std::move(known), .cannot_start = false, .waits_for = {}};
  }
  Inserted inserted{.id = job.id, .cannot_start = false, .waits_for = {}};
  for (const Dependency& dependency : job.after) {
    HPVMD_ASSIGN_OR_RETURN(const std::optional<JobRow> on, transaction.FindJob(job.tenant, dependency.job));
    if (!on.has_value() || !IsEnd(on->view.state)) {  // A job of the same batch may be inserted later.
      inserted.waits_for.push_back(dependency.job);
      HPVMD_RETURN_IF_ERROR(
          transaction.Run(kAddWait, {job.tenant, dependency.job, job.id, static_cast<int64_t>(dependency.condition)})
              .status());
    } else {
      inserted.cannot_start |= !IsMet(dependency.condition, on->view.state);
    }
  }
  HPVMD_ASSIGN_OR_RETURN(TenantRow* const tenant, transaction.LockTenant(job.tenant));
  const auto pending = static_cast<uint32_t>(inserted.waits_for.size());
  HPVMD_RETURN_IF_ERROR(transaction.InsertJob(*tenant, job, pending).status());
  return inserted;
}

Status InsertAll(ClusterTransaction& transaction, const std::vector<NewJob>& jobs, std::vector<JobView>* views) {
  std::vector<Inserted> all;
  for (const NewJob& job : jobs) {
    HPVMD_ASSIGN_OR_RETURN(Inserted inserted, Insert(transaction, job));
    all.push_back(std::move(inserted));
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (const std::string& on : all[i].waits_for) {
      HPVMD_RETURN_IF_ERROR(transaction.Run(kCountDependent, {jobs[i].tenant, on}).status());
    }
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> row, transaction.FindJob(jobs[i].tenant, all[i].id));
    if (!row.has_value()) {
      return DataLoss("The job " + Quoted(all[i].id) + " is missing after it was added.");
    }
    if (all[i].cannot_start && !IsEnd(row->view.state)) {
      HPVMD_RETURN_IF_ERROR(transaction.End(*row, JobState::kFailed, "dependency"));
    }
    views->push_back(std::move(row->view));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<JobView>> SubmitIn(ClusterTransaction& transaction, const std::vector<NewJob>& jobs) {
  HPVMD_RETURN_IF_ERROR(CheckBatch(transaction, jobs));
  std::vector<JobView> views;
  HPVMD_RETURN_IF_ERROR(transaction.Try([&] { return InsertAll(transaction, jobs, &views); }));
  return views;
}

StatusOr<JobView> FinishIn(ClusterTransaction& transaction, const FinishRequest& request) {
  HPVMD_ASSIGN_OR_RETURN(TenantRow* const tenant, transaction.LockTenant(request.job.tenant));
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(request.job.tenant, request.job.id));
  if (!job.has_value()) {
    return NotFound("There is no job " + Quoted(request.job.id) + ".");
  }
  if (job->ended_fence == request.job.fence) {
    return std::move(job->view);  // A repeated call.
  }
  if (job->view.state != JobState::kRunning || job->view.fence != request.job.fence) {
    return FailedPrecondition("The claim " + std::to_string(request.job.fence) + " of the job " +
                              Quoted(request.job.id) + " is over; the last one is " + std::to_string(job->view.fence) +
                              ".");
  }
  tenant->clock += std::chrono::duration<double>(request.device_time).count() / tenant->limits.weight;
  tenant->is_changed = true;
  job->ended_fence = request.job.fence;
  HPVMD_RETURN_IF_ERROR(request.state == JobState::kWaiting ? transaction.TakeBack(*job, request.is_lost)
                                                            : transaction.End(*job, request.state, request.result));
  return std::move(job->view);
}

StatusOr<JobView> CancelIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& id) {
  HPVMD_RETURN_IF_ERROR(transaction.LockTenant(tenant).status());
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(tenant, id));
  if (!job.has_value()) {
    return NotFound("The tenant has no job " + Quoted(id) + ".");
  }
  if (!IsEnd(job->view.state)) {
    job->view.cancel_requested = true;
    HPVMD_RETURN_IF_ERROR(job->view.state == JobState::kWaiting
                              ? transaction.End(*job, JobState::kCancelled, "cancelled")
                              : transaction.SaveJob(*job));
  }
  return std::move(job->view);
}

StatusOr<JobView> GetIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& id) {
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(tenant, id));
  if (!job.has_value()) {
    return NotFound("The tenant has no job " + Quoted(id) + ".");
  }
  return std::move(job->view);
}

StatusOr<Events> WatchIn(ClusterTransaction& transaction, const std::string& tenant, uint64_t cursor, uint32_t most) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows counted, transaction.Run(kCountEvents, {tenant}));
  const uint64_t last = counted.empty() ? 0 : counted[0].Unsigned(0);
  if (cursor > last) {
    return InvalidArgument("The cursor (" + std::to_string(cursor) + ") is beyond the last event (" +
                           std::to_string(last) + ").");
  }
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kListEvents, {tenant, cursor, last, most}));
  // Events are dropped from the first one on, perhaps between the two statements.
  if (most > 0 && cursor < last && (rows.empty() || rows[0].Unsigned(0) != cursor + 1)) {
    return FailedPrecondition("Events after " + std::to_string(cursor) + " are no longer kept; list the jobs again.");
  }
  Events events{.events = {}, .cursor = cursor};
  for (const SqlRow& row : rows) {
    events.events.push_back(
        {.number = row.Unsigned(0), .id = row.Text(1), .state = StateFrom(row.Int(2)), .fence = row.Unsigned(3)});
    events.cursor = row.Unsigned(0);
  }
  return events;
}

StatusOr<Nothing> SetLimitsIn(ClusterTransaction& transaction, const std::string& tenant, const TenantLimits& limits) {
  HPVMD_ASSIGN_OR_RETURN(TenantRow* const row, transaction.LockTenant(tenant));
  row->limits = limits;
  row->is_changed = true;
  return Nothing();
}

}  // namespace hpvm::server::cluster
