// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>

#include "server/cluster/sql/cluster_calls.h"

namespace hpvm::server::cluster {
namespace {

using Key = std::pair<std::string, std::string>;  // Tenant and id.

// Jobs of one page.
constexpr uint32_t kListMax = 1000;

constexpr SqlStatement kFindKey{
    "SELECT id, request, request_hash FROM cluster_jobs WHERE tenant = ?1 AND idempotency_key = ?2"};
constexpr SqlStatement kFindKeyHash{
    "SELECT id, request_hash FROM cluster_jobs WHERE tenant = ?1 AND idempotency_key = ?2"};
constexpr SqlStatement kFindRequest{"SELECT request, request_hash FROM cluster_jobs WHERE tenant = ?1 AND id = ?2"};
constexpr SqlStatement kAddWait{"INSERT INTO cluster_waits(tenant, job, waiter, condition) VALUES(?1, ?2, ?3, ?4)"};
constexpr SqlStatement kCountDependent{
    "UPDATE cluster_jobs SET dependents = dependents + 1 WHERE tenant = ?1 AND id = ?2"};
constexpr SqlStatement kListSizes{
    "SELECT sequence, length(record) FROM cluster_jobs WHERE tenant = ?1 AND sequence < ?2 "
    "ORDER BY sequence DESC LIMIT ?3"};
constexpr SqlStatement kListSizesInState{
    "SELECT sequence, length(record) FROM cluster_jobs WHERE tenant = ?1 AND state = ?4 AND sequence < ?2 "
    "ORDER BY sequence DESC LIMIT ?3"};
constexpr SqlStatement kListJobs{"SELECT " HPVMD_CLUSTER_JOB_COLUMNS
                                 " FROM cluster_jobs WHERE tenant = ?1 AND sequence < ?2 AND sequence >= ?3 "
                                 "ORDER BY sequence DESC"};
constexpr SqlStatement kListInState{"SELECT " HPVMD_CLUSTER_JOB_COLUMNS
                                    " FROM cluster_jobs WHERE tenant = ?1 AND state = ?4 AND sequence < ?2 "
                                    "AND sequence >= ?3 ORDER BY sequence DESC"};
constexpr SqlStatement kCountEvents{"SELECT events FROM cluster_tenants WHERE tenant = ?1"};
constexpr SqlStatement kListEvents{
    "SELECT number, id, state, fence FROM cluster_events WHERE tenant = ?1 AND number > ?2 AND number <= ?3 "
    "ORDER BY number LIMIT ?4"};

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

// Jobs that exist already, keyed by tenant and idempotency key.
using KnownJobs = std::map<Key, JobView>;

// Adds the tenant's job with that key, if there is one. kFailedPrecondition: it has another request.
Status FindKey(ClusterTransaction& transaction, const NewJob& job, KnownJobs* known) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kFindKey, {job.tenant, KeyOf(job)}));
  if (rows.empty()) {
    return absl::OkStatus();
  }
  const bool is_same = job.request_hash.empty() ? rows[0].Blob(1) == job.request : rows[0].Blob(2) == job.request_hash;
  if (!is_same) {
    return FailedPrecondition("The key " + Quoted(KeyOf(job)) + " was used for another request.");
  }
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> row, transaction.FindJob(job.tenant, rows[0].Text(0)));
  if (!row.has_value()) {
    return DataLoss("The job " + Quoted(rows[0].Text(0)) + " is missing under its tenant's lock.");
  }
  (*known)[{job.tenant, KeyOf(job)}] = std::move(row->view);
  return absl::OkStatus();
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

Status CheckInsert(ClusterTransaction& transaction, const std::vector<NewJob>& jobs, KnownJobs* known) {
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
    HPVMD_RETURN_IF_ERROR(FindKey(transaction, job, known));
    if (!known->contains({job.tenant, KeyOf(job)})) {
      HPVMD_RETURN_IF_ERROR(CheckNew(transaction, job, batch, ++added[job.tenant]));
    }
  }
  return absl::OkStatus();
}

// A batch on its way into the tables.
class Insertion {
 public:
  Insertion(ClusterTransaction& transaction, const std::vector<NewJob>& jobs)
      : transaction_(transaction), jobs_(jobs) {}

  Status Run(const KnownJobs& known) {
    for (const NewJob& job : jobs_) {
      const auto found = known.find({job.tenant, KeyOf(job)});
      const std::string& first = keys_.try_emplace({job.tenant, KeyOf(job)}, job.id).first->second;
      ids_[{job.tenant, job.id}] = found != known.end() ? found->second.id : first;
    }
    for (size_t i = 0; i < jobs_.size(); ++i) {
      HPVMD_RETURN_IF_ERROR(Add(i, known));
    }
    for (const auto& [tenant, on] : waits_) {
      HPVMD_RETURN_IF_ERROR(transaction_.Run(kCountDependent, {tenant, on}).status());
    }
    for (const size_t i : cannot_start_) {
      HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> row, transaction_.FindJob(jobs_[i].tenant, jobs_[i].id));
      if (!row.has_value()) {
        return DataLoss("The job " + Quoted(jobs_[i].id) + " is missing after it was added.");
      }
      HPVMD_RETURN_IF_ERROR(transaction_.End(*row, JobState::kFailed, kEndedByDependency));
      views[i] = std::move(row->view);
    }
    return absl::OkStatus();
  }

  std::vector<JobView> views;

 private:
  Status Add(size_t i, const KnownJobs& known) {
    const NewJob& job = jobs_[i];
    if (const auto found = known.find({job.tenant, KeyOf(job)}); found != known.end()) {
      views.push_back(found->second);
      return absl::OkStatus();
    }
    // Another job of the batch may have the key.
    const auto [mine, is_new] = added_.try_emplace({job.tenant, KeyOf(job)}, i);
    if (!is_new) {
      views.push_back(views[mine->second]);
      return absl::OkStatus();
    }
    uint32_t pending = 0;
    bool can_start = true;
    for (const Dependency& dependency : job.after) {
      const auto same = ids_.find({job.tenant, dependency.job});
      const std::string& id = same != ids_.end() ? same->second : dependency.job;
      HPVMD_ASSIGN_OR_RETURN(const std::optional<JobRow> on, transaction_.FindJob(job.tenant, id));
      if (on.has_value() && IsEnd(on->view.state)) {
        can_start &= IsMet(dependency.condition, on->view.state);
        continue;
      }
      // A job of the same batch may be added later.
      ++pending;
      waits_.emplace_back(job.tenant, id);
      const auto condition = static_cast<int64_t>(dependency.condition);
      HPVMD_RETURN_IF_ERROR(transaction_.Run(kAddWait, {job.tenant, id, job.id, condition}).status());
    }
    HPVMD_ASSIGN_OR_RETURN(TenantRow* const tenant, transaction_.LockTenant(job.tenant));
    HPVMD_ASSIGN_OR_RETURN(JobRow row, transaction_.InsertJob(*tenant, job, pending));
    views.push_back(std::move(row.view));
    if (!can_start) {
      cannot_start_.push_back(i);
    }
    return absl::OkStatus();
  }

  ClusterTransaction& transaction_;
  const std::vector<NewJob>& jobs_;
  std::map<Key, size_t> added_;       // Numbers of jobs in the batch, keyed by tenant and idempotency key.
  std::map<Key, std::string> keys_;   // Ids of the first jobs in the batch, keyed by tenant and idempotency key.
  std::map<Key, std::string> ids_;    // Jobs that ids in the batch mean, keyed by them.
  std::vector<Key> waits_;            // Jobs that others come after, with one entry for each of the others.
  std::vector<size_t> cannot_start_;  // A job that they come after has ended otherwise than required.
};

}  // namespace

StatusOr<std::vector<JobView>> SubmitIn(ClusterTransaction& transaction, const std::vector<NewJob>& jobs) {
  KnownJobs known;
  HPVMD_RETURN_IF_ERROR(CheckInsert(transaction, jobs, &known));
  Insertion insertion(transaction, jobs);
  const Status inserted = transaction.Try([&] { return insertion.Run(known); });
  if (absl::IsAlreadyExists(inserted) && !transaction.has_failed()) {
    return AlreadyExists("The tenant has a job with an id of the batch already, under another key.");
  }
  HPVMD_RETURN_IF_ERROR(inserted);
  return std::move(insertion.views);
}

StatusOr<JobView> FinishIn(ClusterTransaction& transaction, const FinishRequest& request) {
  HPVMD_ASSIGN_OR_RETURN(TenantRow* const tenant, transaction.LockTenant(request.job.tenant));
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job,
                         transaction.FindJob(request.job.tenant, request.job.id, /*with_result=*/true));
  if (!job.has_value()) {
    return NotFound("There is no job " + Quoted(request.job.id) + ".");
  }
  // A database that lost its last transactions gives a fence again, perhaps to another host.
  const bool is_mine = job->view.host == request.worker && job->view.fence == request.job.fence;
  if (is_mine && job->ended_fence == request.job.fence && request.job.fence > 0) {
    return std::move(job->view);  // A repeated call.
  }
  if (job->view.state != JobState::kRunning || !is_mine) {
    return FailedPrecondition("The claim " + std::to_string(request.job.fence) + " of the job " +
                              Quoted(request.job.id) + " is over; the last one is " + std::to_string(job->view.fence) +
                              ".");
  }
  tenant->clock += std::chrono::duration<double>(request.device_time).count() / tenant->limits.weight;
  tenant->is_changed = true;
  job->ended_fence = request.job.fence;
  if (!request.record.empty()) {
    job->view.record = request.record;
    job->has_new_record = true;
  }
  HPVMD_RETURN_IF_ERROR(request.state == JobState::kWaiting ? transaction.TakeBack(*job, request.is_lost)
                                                            : transaction.End(*job, request.state, request.result));
  return std::move(job->view);
}

StatusOr<JobView> CancelIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& id) {
  HPVMD_RETURN_IF_ERROR(transaction.LockTenant(tenant).status());
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(tenant, id, /*with_result=*/true));
  if (!job.has_value()) {
    return NotFound("The tenant has no job " + Quoted(id) + ".");
  }
  if (!IsEnd(job->view.state)) {
    job->view.cancel_requested = true;
    HPVMD_RETURN_IF_ERROR(job->view.state == JobState::kWaiting
                              ? transaction.End(*job, JobState::kCancelled, kEndedByCancel)
                              : transaction.SaveJob(*job));
  }
  return std::move(job->view);
}

StatusOr<JobView> GetIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& id) {
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(tenant, id, /*with_result=*/true));
  if (!job.has_value()) {
    return NotFound("The tenant has no job " + Quoted(id) + ".");
  }
  return std::move(job->view);
}

StatusOr<JobView> SetHoldIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& id,
                            bool is_held, const std::string& hold) {
  HPVMD_ASSIGN_OR_RETURN(TenantRow* const row, transaction.LockTenant(tenant));
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(tenant, id));
  if (!job.has_value()) {
    return NotFound("The tenant has no job " + Quoted(id) + ".");
  }
  if (job->view.state != JobState::kWaiting) {
    return FailedPrecondition("The job " + Quoted(id) + " is " + std::string(Name(job->view.state)) +
                              "; only waiting jobs can be held or let go.");
  }
  job->view.is_held = is_held;
  job->view.hold = is_held ? hold : "";
  job->is_ready = transaction.IsReady(*job);
  row->has_new_jobs |= job->is_ready;
  row->is_changed |= job->is_ready;
  HPVMD_RETURN_IF_ERROR(transaction.SaveHold(*job));
  return std::move(job->view);
}

StatusOr<StoredJobRequest> GetRequestIn(ClusterTransaction& transaction, const std::string& tenant,
                                        const std::string& id) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kFindRequest, {tenant, id}));
  if (rows.empty()) {
    return NotFound("The tenant has no job " + Quoted(id) + ".");
  }
  return StoredJobRequest{.request = rows[0].Blob(0), .request_hash = rows[0].Blob(1)};
}

StatusOr<KeyView> FindKeyIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& key) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kFindKeyHash, {tenant, key}));
  std::optional<JobRow> job;
  if (!rows.empty()) {
    HPVMD_ASSIGN_OR_RETURN(job, transaction.FindJob(tenant, rows[0].Text(0)));
  }
  if (!job.has_value()) {
    return NotFound("The tenant has no job with that key.");
  }
  return KeyView{.job = std::move(job->view), .request_hash = rows[0].Blob(1)};
}

// Each state has an index of its own, so that a few running jobs among many waiting ones are found at once.
StatusOr<JobPage> ListIn(ClusterTransaction& transaction, const ListRequest& request) {
  const uint64_t before = request.before == 0 ? UINT64_MAX : request.before;
  const uint32_t most = std::clamp(request.most, 1u, kListMax);
  // `bound` is the number of rows, or the number of the last job.
  const auto list = [&](const SqlStatement& all, const SqlStatement& in_state, uint64_t bound) -> StatusOr<SqlRows> {
    if (request.states.empty()) {
      return transaction.Run(all, {request.tenant, before, bound});
    }
    SqlRows found;
    for (const JobState state : request.states) {
      HPVMD_ASSIGN_OR_RETURN(SqlRows rows,
                             transaction.Run(in_state, {request.tenant, before, bound, static_cast<int64_t>(state)}));
      std::ranges::move(rows, std::back_inserter(found));
    }
    std::ranges::sort(found, std::greater<>(), [](const SqlRow& row) { return row.Unsigned(0); });
    return found;
  };
  HPVMD_ASSIGN_OR_RETURN(const SqlRows sizes, list(kListSizes, kListSizesInState, most));
  size_t count = 0;
  for (uint64_t bytes = 0; count < std::min<size_t>(sizes.size(), most); ++count) {
    bytes += sizes[count].Unsigned(1);
    if (count > 0 && bytes > kPageBytesMax) {
      break;
    }
  }
  JobPage page;
  if (count == 0) {
    return page;
  }
  const uint64_t last = sizes[count - 1].Unsigned(0);
  page.next = count < sizes.size() || count == most ? last : 0;
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, list(kListJobs, kListInState, last));
  for (const SqlRow& row : rows) {
    page.jobs.push_back(ReadJob(row).view);
  }
  return page;
}

StatusOr<Events> WatchIn(ClusterTransaction& transaction, const std::string& tenant, uint64_t cursor, uint32_t most) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows counted, transaction.Run(kCountEvents, {tenant}));
  const uint64_t last = counted.empty() ? 0 : counted[0].Unsigned(0);
  if (cursor == kNewestEvent) {
    return Events{.events = {}, .jobs = {}, .cursor = last};
  }
  if (cursor > last) {
    return InvalidArgument("The cursor (" + std::to_string(cursor) + ") is beyond the last event (" +
                           std::to_string(last) + ").");
  }
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kListEvents, {tenant, cursor, last, most}));
  // Events are dropped from the first one on, perhaps between the two statements.
  if (most > 0 && cursor < last && (rows.empty() || rows[0].Unsigned(0) != cursor + 1)) {
    return FailedPrecondition("Events after " + std::to_string(cursor) + " are no longer kept; list the jobs again.");
  }
  Events events{.events = {}, .jobs = {}, .cursor = cursor};
  std::set<std::string> ids;
  uint64_t bytes = 0;
  for (const SqlRow& row : rows) {
    if (!ids.contains(row.Text(1))) {
      HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(tenant, row.Text(1)));
      bytes += job.has_value() ? job->view.record.size() : 0;
      if (!ids.empty() && bytes > kPageBytesMax) {
        break;
      }
      ids.insert(row.Text(1));
      if (job.has_value()) {
        events.jobs.push_back(std::move(job->view));
      }
    }
    events.events.push_back(
        {.number = row.Unsigned(0), .id = row.Text(1), .state = StateFrom(row.Int(2)), .fence = row.Unsigned(3)});
    events.cursor = row.Unsigned(0);
  }
  events.has_more = events.cursor < last;
  std::ranges::sort(events.jobs, {}, &JobView::number);
  return events;
}

StatusOr<Nothing> SetLimitsIn(ClusterTransaction& transaction, const std::string& tenant, const TenantLimits& limits) {
  HPVMD_ASSIGN_OR_RETURN(TenantRow* const row, transaction.LockTenant(tenant));
  HPVMD_RETURN_IF_ERROR(transaction.SaveLimits(*row, limits));
  return Nothing();
}

}  // namespace hpvm::server::cluster
