// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "base/hash.h"
#include "server/cluster/sql/cluster_calls.h"

namespace hpvm::server::cluster {
namespace {

using Key = std::pair<std::string, std::string>;  // Tenant and id.

constexpr SqlStatement kListClaims{
    "SELECT tenant, id, fence, cancel_requested, deadline, claim FROM cluster_jobs "
    "WHERE state = 1 AND host = ?1 AND incarnation = ?2"};

constexpr SqlStatement kListHosts{
    "SELECT host, incarnation, lease_end, intake, has_left, has, memory, "
    "(SELECT count(*) FROM cluster_jobs WHERE state = 1 AND cluster_jobs.host = cluster_hosts.host), "
    "(SELECT CAST(coalesce(sum(memory), 0) AS BIGINT) FROM cluster_jobs WHERE state = 1 AND cluster_jobs.host = "
    "cluster_hosts.host) FROM cluster_hosts ORDER BY host"};

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

Status TakeBackAll(ClusterTransaction& transaction, const HostRow& host, bool counts) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kListClaims, {host.name, host.incarnation}));
  std::set<Key> jobs;
  for (const SqlRow& row : rows) {
    jobs.emplace(row.Text(0), row.Text(1));
  }
  return TakeBackClaims(transaction, host, jobs, counts);
}

}  // namespace

Status TakeBackClaims(ClusterTransaction& transaction, const HostRow& host, const std::set<Key>& jobs, bool counts) {
  for (const auto& [tenant, id] : jobs) {  // Sorted, as LockTenant asks.
    HPVMD_RETURN_IF_ERROR(transaction.LockTenant(tenant).status());
  }
  for (const auto& [tenant, id] : jobs) {
    HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(tenant, id));
    if (job.has_value() && job->view.state == JobState::kRunning && job->view.host == host.name &&
        job->incarnation == host.incarnation) {
      HPVMD_RETURN_IF_ERROR(transaction.TakeBack(*job, counts));
    }
  }
  return absl::OkStatus();
}

StatusOr<Lease> JoinIn(ClusterTransaction& transaction, const Worker& worker) {
  HPVMD_RETURN_IF_ERROR(CheckWorker(worker));
  HPVMD_ASSIGN_OR_RETURN(const std::optional<HostRow> before, transaction.LockHost(worker.name));
  if (before.has_value()) {
    const bool is_same = before->process == worker.process;
    if (!is_same && before->process != worker.replaces && before->IsLive(transaction.now())) {
      return AlreadyExists("Another process of the host " + Quoted(worker.name) +
                           " has a lease: two daemons have one name.");
    }
    if (is_same && worker.joins <= before->joins) {
      return FailedPrecondition("Join " + std::to_string(worker.joins) + " of the host " + Quoted(worker.name) +
                                " comes late.");
    }
    HPVMD_RETURN_IF_ERROR(TakeBackAll(transaction, *before, /*counts=*/true));
  }
  HostRow host;
  host.name = worker.name;
  host.process = worker.process;
  host.joins = worker.joins;
  host.has = worker.has;
  host.memory_bytes = worker.memory_bytes;
  // A database that lost its last transactions counts again from an earlier number; the process makes it another one.
  HPVMD_ASSIGN_OR_RETURN(const uint64_t number, transaction.NextIncarnation());
  const Sha256 hash = HashOf(worker.process + "/" + std::to_string(worker.joins));
  host.incarnation = number << 16 | uint64_t{hash.bytes[0]} << 8 | hash.bytes[1];
  host.lease_end = transaction.now() + transaction.options().lease;
  host.intake = before.has_value() ? before->intake : HostIntake::kOpen;
  HPVMD_RETURN_IF_ERROR(transaction.SaveHost(host));
  return Lease{.incarnation = host.incarnation, .length = transaction.options().lease};
}

StatusOr<Nothing> LeaveIn(ClusterTransaction& transaction, const std::string& worker, uint64_t incarnation) {
  HPVMD_ASSIGN_OR_RETURN(HostRow host, transaction.LockLease(worker, incarnation));
  HPVMD_RETURN_IF_ERROR(TakeBackAll(transaction, host, /*counts=*/false));
  host.has_left = true;
  HPVMD_RETURN_IF_ERROR(transaction.SaveHost(host));
  return Nothing();
}

StatusOr<Renewal> RenewIn(ClusterTransaction& transaction, const RenewRequest& request) {
  HPVMD_ASSIGN_OR_RETURN(HostRow host, transaction.LockLease(request.worker, request.incarnation));
  host.lease_end = std::max(host.lease_end, transaction.now() + transaction.options().lease);
  host.settled = std::max(host.settled, request.claims_settled);
  HPVMD_RETURN_IF_ERROR(CheckWords(request.has.value_or(std::set<std::string>())));
  if (request.has.has_value() && request.has_number > host.has_number) {
    host.has = *request.has;
    host.has_number = request.has_number;
  }
  HPVMD_RETURN_IF_ERROR(transaction.SaveHost(host));
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kListClaims, {host.name, host.incarnation}));
  std::map<HeldJob, const SqlRow*> claims;
  for (const SqlRow& row : rows) {
    claims[{row.Text(0), row.Text(1), row.Unsigned(2)}] = &row;
  }
  Renewal renewal{.length = transaction.options().lease,
                  .lost = {},
                  .cancelled = {},
                  .expired = {},
                  .is_draining = host.intake == HostIntake::kDraining};
  for (const HeldJob& held : std::set<HeldJob>(request.held.begin(), request.held.end())) {
    const auto claim = claims.find(held);
    if (claim == claims.end()) {
      renewal.lost.push_back(held);
      continue;
    }
    if (claim->second->Int(3) != 0) {
      renewal.cancelled.push_back(held);
    } else if (transaction.now() >= Time(claim->second->Int(4))) {
      renewal.expired.push_back(held);
    }
    claims.erase(claim);
  }
  std::set<Key> unanswered;  // The answers to their claims were lost.
  for (const auto& [held, row] : claims) {
    if (row->Unsigned(5) <= request.claims_settled) {
      unanswered.emplace(held.tenant, held.id);
    }
  }
  HPVMD_RETURN_IF_ERROR(TakeBackClaims(transaction, host, unanswered, /*counts=*/false));
  return renewal;
}

StatusOr<std::vector<HostView>> ListHostsIn(ClusterTransaction& transaction) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction.Run(kListHosts));
  std::vector<HostView> hosts;
  for (const SqlRow& row : rows) {
    HostView host;
    host.name = row.Text(0);
    host.incarnation = row.Unsigned(1);
    host.is_live = row.Int(4) == 0 && transaction.now() < Time(row.Int(2));
    host.has_left = row.Int(4) != 0;
    host.intake = static_cast<HostIntake>(std::clamp<int64_t>(row.Int(3), 0, 2));
    HPVMD_ASSIGN_OR_RETURN(host.has, WordsFrom(row.Text(5)));
    host.memory_bytes = row.Unsigned(6);
    host.running = row.Unsigned(7);
    host.memory_used_bytes = row.Unsigned(8);
    hosts.push_back(std::move(host));
  }
  return hosts;
}

StatusOr<Nothing> SetIntakeIn(ClusterTransaction& transaction, const std::string& worker, HostIntake intake) {
  HPVMD_RETURN_IF_ERROR(CheckName("The name of a host", worker));
  HPVMD_ASSIGN_OR_RETURN(std::optional<HostRow> host, transaction.LockHost(worker));
  if (!host.has_value()) {
    return NotFound("There is no host " + Quoted(worker) + ".");
  }
  host->intake = intake;
  HPVMD_RETURN_IF_ERROR(transaction.SaveHost(*host));
  return Nothing();
}

}  // namespace hpvm::server::cluster
