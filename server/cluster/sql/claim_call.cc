// SPDX-License-Identifier: Apache-2.0
// Method: a claim reads the tenants with the least use for their weight, locks them in the order of names, and looks at
// the first waiting jobs for each of their needs that the host has. Then it takes one job after the other from the
// tenant with the least use. So its work depends on the numbers of tenants in a page, of different needs and of jobs
// that it takes, and not on how many jobs wait.
#include <algorithm>
#include <map>
#include <tuple>

#include "server/cluster/sql/cluster_calls.h"

namespace hpvm::server::cluster {
namespace {

// Tenants that one transaction looks at.
constexpr uint32_t kPageTenants = 16;
// Delays of a tenant's jobs that one claim ends, and first jobs for each of its needs that one claim looks at.
constexpr uint32_t kDelaysMax = 64;
constexpr uint32_t kHeadsMax = 64;

constexpr SqlStatement kPageFirst{
    "SELECT clock, tenant FROM cluster_tenants WHERE waiting > 0 AND disabled = 0 AND running < running_max "
    "ORDER BY clock, tenant LIMIT ?1"};
constexpr SqlStatement kPageNext{
    "SELECT clock, tenant FROM cluster_tenants WHERE waiting > 0 AND disabled = 0 AND running < running_max "
    "AND (clock > ?1 OR (clock = ?1 AND tenant > ?2)) ORDER BY clock, tenant LIMIT ?3"};
constexpr SqlStatement kLeastClocks{
    "SELECT clock, tenant FROM cluster_tenants WHERE running > 0 ORDER BY clock LIMIT ?1"};
constexpr SqlStatement kEndDelays{
    "UPDATE cluster_jobs SET ready = 1 WHERE sequence IN (SELECT sequence FROM cluster_jobs WHERE tenant = ?1 "
    "AND state = 0 AND ready = 0 AND pending = 0 AND held = 0 AND not_before <= ?2 ORDER BY not_before LIMIT ?3)"};
constexpr SqlStatement kListHeads{
    "SELECT " HPVMD_CLUSTER_JOB_NUMBERS
    " FROM (SELECT * FROM cluster_jobs WHERE tenant = ?1 AND needs = ?2 AND state = 0 AND ready = 1 AND held = 0 "
    "ORDER BY priority DESC, sequence LIMIT ?3) AS heads "
    "WHERE memory <= ?4 AND deadline > ?5 AND submitted <= ?6 ORDER BY priority DESC, sequence LIMIT ?7"};
constexpr SqlStatement kMemoryUsed{
    "SELECT CAST(coalesce(sum(memory), 0) AS BIGINT) FROM cluster_jobs WHERE state = 1 AND host = ?1"};
constexpr SqlStatement kListHosts{
    "SELECT host FROM cluster_hosts WHERE has_left = 0 AND intake = 0 AND lease_end > ?1"};

struct Candidate {
  TenantRow* tenant = nullptr;
  std::vector<JobRow> heads;  // The first one first.
};

bool IsBefore(const JobRow& job, const JobRow& other) {
  return std::tuple(-int64_t{job.priority}, job.sequence) < std::tuple(-int64_t{other.priority}, other.sequence);
}

class ClaimCall {
 public:
  ClaimCall(ClusterTransaction& transaction, const ClaimRequest& request)
      : transaction_(transaction), request_(request) {}

  StatusOr<ClaimPageResult> Run(const ClaimPage& page);

 private:
  Status LockClaim(bool is_first);
  StatusOr<ClaimPageResult> LockPage(const ClaimPage& page);
  Status ReadLeastClock();
  Status LoadHeads(Candidate& candidate);
  Status ListLiveHosts();
  bool HasAll(const Needs& needs) const;
  // Returns the time before which a job with these needs must have been submitted; nullopt: the host may not claim it.
  std::optional<Time> SubmittedBefore(const Needs& needs) const;
  std::optional<std::pair<Candidate*, size_t>> Next();
  Status Take(Candidate& candidate, size_t head, Claims* claims);

  ClusterTransaction& transaction_;
  const ClaimRequest& request_;
  HostRow host_;
  uint64_t memory_free_ = 0;
  std::optional<double> least_clock_;  // The least clock of tenants that run something and are not in the page.
  std::set<std::string> live_hosts_;   // The others that would take a job.
  std::vector<Candidate> candidates_;
};

Status ClaimCall::LockClaim(bool is_first) {
  HPVMD_ASSIGN_OR_RETURN(host_, transaction_.LockLease(request_.worker, request_.incarnation));
  const bool is_known = is_first ? request_.number > host_.last_claim : request_.number == host_.last_claim;
  if (!is_known || request_.number <= host_.settled) {
    return FailedPrecondition("Claim " + std::to_string(request_.number) + " of the host \"" + request_.worker +
                              "\" comes late.");
  }
  if (is_first) {
    host_.last_claim = request_.number;
    HPVMD_RETURN_IF_ERROR(transaction_.SaveHost(host_));
  }
  return absl::OkStatus();
}

StatusOr<ClaimPageResult> ClaimCall::LockPage(const ClaimPage& page) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows,
                         page.after.has_value()
                             ? transaction_.Run(kPageNext, {page.after->first, page.after->second, kPageTenants})
                             : transaction_.Run(kPageFirst, {kPageTenants}));
  ClaimPageResult result;
  if (rows.size() == kPageTenants) {
    result.next.emplace(rows.back().Real(0), rows.back().Text(1));
  }
  std::set<std::string> names;
  for (const SqlRow& row : rows) {
    names.insert(row.Text(1));
  }
  for (const std::string& name : names) {
    HPVMD_ASSIGN_OR_RETURN(TenantRow* const tenant, transaction_.LockTenant(name));
    if (tenant->waiting > 0 && !tenant->limits.is_disabled && tenant->running < tenant->limits.running_max) {
      candidates_.push_back({.tenant = tenant, .heads = {}});
    }
  }
  return result;
}

Status ClaimCall::ReadLeastClock() {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction_.Run(kLeastClocks, {kPageTenants + 1}));
  for (const SqlRow& row : rows) {
    if (std::ranges::none_of(candidates_, [&](const Candidate& other) { return other.tenant->name == row.Text(1); })) {
      least_clock_ = row.Real(0);
      break;
    }
  }
  return absl::OkStatus();
}

Status ClaimCall::ListLiveHosts() {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, transaction_.Run(kListHosts, {transaction_.now().count()}));
  for (const SqlRow& row : rows) {
    live_hosts_.insert(row.Text(0));
  }
  return absl::OkStatus();
}

bool ClaimCall::HasAll(const Needs& needs) const {
  return (needs.host.empty() || needs.host == host_.name) && needs.memory_bytes <= memory_free_ &&
         std::ranges::all_of(needs.any_of, [&](const std::set<std::string>& words) {
           return std::ranges::any_of(words, [&](const std::string& word) { return host_.has.contains(word); });
         });
}

std::optional<Time> ClaimCall::SubmittedBefore(const Needs& needs) const {
  if (!HasAll(needs)) {
    return std::nullopt;
  }
  const bool is_mine =
      needs.prefers.empty() || needs.prefers.contains(host_.name) ||
      std::ranges::none_of(needs.prefers, [&](const auto& name) { return live_hosts_.contains(name); });
  return is_mine ? transaction_.now() : transaction_.now() - transaction_.options().prefer_for;
}

Status ClaimCall::LoadHeads(Candidate& candidate) {
  const std::string& name = candidate.tenant->name;
  const int64_t now = transaction_.now().count();
  HPVMD_RETURN_IF_ERROR(transaction_.Run(kEndDelays, {name, now, kDelaysMax}).status());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<NeedsRow> all, transaction_.LoadNeeds(name));
  for (const NeedsRow& row : all) {
    if (!row.needs.prefers.empty() && live_hosts_.empty()) {
      HPVMD_RETURN_IF_ERROR(ListLiveHosts());
    }
    const std::optional<Time> before = SubmittedBefore(row.needs);
    const uint64_t most = std::min<uint64_t>(request_.jobs_max, row.Room());
    if (!before.has_value() || most == 0) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const SqlRows heads, transaction_.Run(kListHeads, {name, row.id, kHeadsMax, memory_free_,
                                                                              now, before->count(), most}));
    for (const SqlRow& head : heads) {
      candidate.heads.push_back(ReadJobNumbers(head));
    }
  }
  std::ranges::sort(candidate.heads, IsBefore);
  return absl::OkStatus();
}

std::optional<std::pair<Candidate*, size_t>> ClaimCall::Next() {
  std::optional<std::pair<Candidate*, size_t>> best;
  for (Candidate& candidate : candidates_) {
    const TenantRow& tenant = *candidate.tenant;
    const auto head =
        std::ranges::find_if(candidate.heads, [&](const JobRow& job) { return job.memory_bytes <= memory_free_; });
    if (head == candidate.heads.end() || tenant.running >= tenant.limits.running_max) {
      continue;
    }
    const TenantRow* const other = best.has_value() ? best->first->tenant : nullptr;
    if (other == nullptr || std::tie(tenant.clock, tenant.name) < std::tie(other->clock, other->name)) {
      best.emplace(&candidate, static_cast<size_t>(head - candidate.heads.begin()));
    }
  }
  return best;
}

Status ClaimCall::Take(Candidate& candidate, size_t head, Claims* claims) {
  TenantRow& tenant = *candidate.tenant;
  JobRow job = std::move(candidate.heads[head]);
  candidate.heads.erase(candidate.heads.begin() + static_cast<ptrdiff_t>(head));
  // A tenant that was idle gets no credit for the past.
  std::optional<double> least = least_clock_;
  for (const Candidate& other : candidates_) {
    if (other.tenant->running > 0) {
      least = std::min(other.tenant->clock, least.value_or(other.tenant->clock));
    }
  }
  tenant.clock = std::max(tenant.clock, least.value_or(tenant.clock)) +
                 std::chrono::duration<double>(transaction_.options().start_cost).count() / tenant.limits.weight;
  ++job.view.attempts;
  ++job.view.fence;
  job.view.host = request_.worker;
  job.incarnation = request_.incarnation;
  job.claim = request_.number;
  Claim claim{.tenant = job.view.tenant,
              .id = job.view.id,
              .request = "",
              .record = "",
              .number = job.view.number,
              .fence = job.view.fence,
              .attempts = job.view.attempts,
              .is_last_attempt = job.view.attempts >= job.attempts_max};
  HPVMD_RETURN_IF_ERROR(transaction_.Change(job, JobState::kRunning, &claim));
  memory_free_ -= job.memory_bytes;
  claims->jobs.push_back(std::move(claim));
  return absl::OkStatus();
}

StatusOr<ClaimPageResult> ClaimCall::Run(const ClaimPage& page) {
  HPVMD_RETURN_IF_ERROR(LockClaim(page.is_first));
  if (host_.intake != HostIntake::kOpen || request_.jobs_max == 0) {
    return ClaimPageResult();
  }
  HPVMD_ASSIGN_OR_RETURN(const SqlRows used, transaction_.Run(kMemoryUsed, {host_.name}));
  const uint64_t used_bytes = used.empty() ? 0 : used[0].Unsigned(0);
  memory_free_ = host_.memory_bytes - std::min(host_.memory_bytes, used_bytes);
  HPVMD_ASSIGN_OR_RETURN(ClaimPageResult result, LockPage(page));
  HPVMD_RETURN_IF_ERROR(ReadLeastClock());
  for (Candidate& candidate : candidates_) {
    HPVMD_RETURN_IF_ERROR(LoadHeads(candidate));
  }
  while (result.claims.jobs.size() < request_.jobs_max) {
    const auto next = Next();
    if (!next.has_value()) {
      break;
    }
    HPVMD_RETURN_IF_ERROR(Take(*next->first, next->second, &result.claims));
  }
  return result;
}

}  // namespace

StatusOr<ClaimPageResult> ClaimIn(ClusterTransaction& transaction, const ClaimRequest& request, const ClaimPage& page) {
  return ClaimCall(transaction, request).Run(page);
}

}  // namespace hpvm::server::cluster
