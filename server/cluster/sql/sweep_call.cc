// SPDX-License-Identifier: Apache-2.0
// Method: read without locks what may be due, lock the hosts and then the tenants of it, and judge each again under the
// lock. Two sweeps at once find the same, and the second one finds it done.
#include <algorithm>

#include "server/cluster/sql/cluster_calls.h"

namespace hpvm::server::cluster {
namespace {

using Key = std::pair<std::string, std::string>;  // Tenant and id.

constexpr SqlStatement kListExpired{
    "SELECT cluster_jobs.tenant, cluster_jobs.id, cluster_jobs.host FROM cluster_hosts JOIN cluster_jobs "
    "ON cluster_jobs.host = cluster_hosts.host AND cluster_jobs.incarnation = cluster_hosts.incarnation "
    "AND cluster_jobs.state = 1 WHERE cluster_hosts.lease_end <= ?1 LIMIT ?2"};
constexpr SqlStatement kListLate{
    "SELECT tenant, id FROM cluster_jobs WHERE state = 0 AND deadline < 9223372036854775807 AND deadline <= ?1 "
    "ORDER BY deadline LIMIT ?2"};
constexpr SqlStatement kListEnded{"SELECT tenant, job FROM cluster_ended ORDER BY tenant, job LIMIT ?1"};
constexpr SqlStatement kListForgotten{
    "SELECT tenant, id FROM cluster_jobs WHERE state >= 2 AND ended <= ?1 AND NOT EXISTS (SELECT 1 FROM cluster_ended "
    "WHERE cluster_ended.tenant = cluster_jobs.tenant AND cluster_ended.job = cluster_jobs.id) ORDER BY ended LIMIT "
    "?2"};
constexpr SqlStatement kForget{"DELETE FROM cluster_jobs WHERE tenant = ?1 AND id = ?2 AND state >= 2"};
constexpr SqlStatement kListWaits{
    "SELECT id, waiter, condition FROM cluster_waits WHERE tenant = ?1 AND job = ?2 ORDER BY id LIMIT ?3"};
constexpr SqlStatement kDropWait{"DELETE FROM cluster_waits WHERE id = ?1"};
constexpr SqlStatement kDropEnded{"DELETE FROM cluster_ended WHERE tenant = ?1 AND job = ?2"};

class SweepCall {
 public:
  SweepCall(ClusterTransaction& transaction, uint32_t most) : transaction_(transaction), most_(most) {}
  StatusOr<SweepResult> Run();

 private:
  Status FindDue();
  Status LockAll();
  Status TakeBackExpired();
  Status EndLate();
  Status TellDependents();
  Status ForgetOld();
  // Tells one dependent that `job` has ended in `state`.
  Status Tell(const std::string& tenant, const std::string& waiter, Dependency::Condition condition, JobState state);
  uint32_t left() const { return most_ - std::min<uint32_t>(most_, static_cast<uint32_t>(result_.changes)); }

  ClusterTransaction& transaction_;
  const uint32_t most_;
  SweepResult result_;
  std::map<std::string, std::set<Key>> expired_;  // Keyed by host.
  std::map<std::string, HostRow> hosts_;          // Those of them whose lease has expired.
  std::set<Key> late_, ended_, forgotten_;
};

Status SweepCall::FindDue() {
  const int64_t now = transaction_.now().count();
  HPVMD_ASSIGN_OR_RETURN(const SqlRows expired, transaction_.Run(kListExpired, {now, most_}));
  for (const SqlRow& row : expired) {
    expired_[row.Text(2)].emplace(row.Text(0), row.Text(1));
  }
  const uint32_t late_max = most_ - static_cast<uint32_t>(expired.size());
  HPVMD_ASSIGN_OR_RETURN(const SqlRows late, transaction_.Run(kListLate, {now, late_max}));
  for (const SqlRow& row : late) {
    late_.emplace(row.Text(0), row.Text(1));
  }
  const uint32_t ended_max = late_max - static_cast<uint32_t>(late.size());
  HPVMD_ASSIGN_OR_RETURN(const SqlRows ended, transaction_.Run(kListEnded, {ended_max}));
  for (const SqlRow& row : ended) {
    ended_.emplace(row.Text(0), row.Text(1));
  }
  const uint32_t forgotten_max = ended_max - static_cast<uint32_t>(ended.size());
  const int64_t until = now - transaction_.options().keep_ended.count();
  HPVMD_ASSIGN_OR_RETURN(const SqlRows forgotten, transaction_.Run(kListForgotten, {until, forgotten_max}));
  for (const SqlRow& row : forgotten) {
    forgotten_.emplace(row.Text(0), row.Text(1));
  }
  result_.has_more = expired.size() + late.size() + ended.size() + forgotten.size() >= most_;
  return absl::OkStatus();
}

Status SweepCall::LockAll() {
  std::set<std::string> tenants;
  for (const auto& [name, jobs] : expired_) {
    HPVMD_ASSIGN_OR_RETURN(std::optional<HostRow> host, transaction_.LockHost(name));
    if (host.has_value() && !host->IsLive(transaction_.now())) {  // It may have renewed its lease since.
      hosts_.emplace(name, *std::move(host));
    }
    for (const Key& job : jobs) {
      tenants.insert(job.first);
    }
  }
  for (const std::set<Key>* jobs : {&late_, &ended_, &forgotten_}) {
    for (const Key& job : *jobs) {
      tenants.insert(job.first);
    }
  }
  for (const std::string& tenant : tenants) {
    HPVMD_RETURN_IF_ERROR(transaction_.LockTenant(tenant).status());
  }
  return absl::OkStatus();
}

Status SweepCall::TakeBackExpired() {
  for (const auto& [name, host] : hosts_) {
    const std::set<Key>& jobs = expired_[name];
    HPVMD_RETURN_IF_ERROR(TakeBackClaims(transaction_, host, jobs, /*counts=*/true));
    result_.changes += jobs.size();
  }
  return absl::OkStatus();
}

Status SweepCall::EndLate() {
  for (const auto& [tenant, id] : late_) {
    HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction_.FindJob(tenant, id));
    if (job.has_value() && job->view.state == JobState::kWaiting && job->deadline <= transaction_.now()) {
      const JobState end = job->view.fence > 0 ? JobState::kFailed : JobState::kExpired;
      HPVMD_RETURN_IF_ERROR(transaction_.End(*job, end, kEndedByDeadline));
      ++result_.changes;
    }
  }
  return absl::OkStatus();
}

Status SweepCall::Tell(const std::string& tenant, const std::string& waiter, Dependency::Condition condition,
                       JobState state) {
  HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction_.FindJob(tenant, waiter));
  if (!job.has_value()) {
    return absl::OkStatus();  // It was deleted.
  }
  job->pending -= std::min(job->pending, 1u);
  if (job->view.state == JobState::kWaiting && !IsMet(condition, state)) {
    return transaction_.End(*job, JobState::kFailed, kEndedByDependency);
  }
  job->is_ready = transaction_.IsReady(*job);
  if (job->is_ready) {
    HPVMD_ASSIGN_OR_RETURN(TenantRow* const row, transaction_.LockTenant(tenant));
    row->is_changed = row->has_new_jobs = true;
  }
  return transaction_.SaveJob(*job);
}

Status SweepCall::TellDependents() {
  for (const auto& [tenant, id] : ended_) {
    if (left() == 0) {
      result_.has_more = true;
      break;
    }
    HPVMD_ASSIGN_OR_RETURN(const std::optional<JobRow> job, transaction_.FindJob(tenant, id));
    HPVMD_ASSIGN_OR_RETURN(const SqlRows waits, transaction_.Run(kListWaits, {tenant, id, left()}));
    const bool are_all = waits.size() < left();
    for (const SqlRow& wait : waits) {
      HPVMD_RETURN_IF_ERROR(transaction_.Run(kDropWait, {wait.Int(0)}).status());
      HPVMD_RETURN_IF_ERROR(Tell(tenant, wait.Text(1), static_cast<Dependency::Condition>(wait.Int(2)),
                                 job.has_value() ? job->view.state : JobState::kDead));
      ++result_.changes;
    }
    if (are_all) {
      HPVMD_RETURN_IF_ERROR(transaction_.Run(kDropEnded, {tenant, id}).status());
    } else {
      result_.has_more = true;
    }
  }
  return absl::OkStatus();
}

Status SweepCall::ForgetOld() {
  for (const auto& [tenant, id] : forgotten_) {
    HPVMD_RETURN_IF_ERROR(transaction_.Run(kForget, {tenant, id}).status());
    ++result_.changes;
  }
  return absl::OkStatus();
}

StatusOr<SweepResult> SweepCall::Run() {
  HPVMD_RETURN_IF_ERROR(transaction_.AdvanceClock());
  HPVMD_RETURN_IF_ERROR(FindDue());
  HPVMD_RETURN_IF_ERROR(LockAll());
  HPVMD_RETURN_IF_ERROR(TakeBackExpired());
  HPVMD_RETURN_IF_ERROR(EndLate());
  HPVMD_RETURN_IF_ERROR(TellDependents());
  HPVMD_RETURN_IF_ERROR(ForgetOld());
  return result_;
}

}  // namespace

StatusOr<SweepResult> SweepIn(ClusterTransaction& transaction, uint32_t most) {
  return SweepCall(transaction, most).Run();
}

}  // namespace hpvm::server::cluster
