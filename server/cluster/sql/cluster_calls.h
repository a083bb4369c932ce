// SPDX-License-Identifier: Apache-2.0
// The calls of ClusterStore (cluster_store.h has their promises), each in one open transaction. Parameters have been
// checked before (CheckBatch and the like). A refusal leaves the transaction as it was; after other errors it has to be
// undone.
#ifndef HPVMD_SERVER_CLUSTER_SQL_CLUSTER_CALLS_H_
#define HPVMD_SERVER_CLUSTER_SQL_CLUSTER_CALLS_H_

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/cluster_store.h"
#include "server/cluster/sql/cluster_transaction.h"

namespace hpvm::server::cluster {

// Jobs (job_calls.cc).
StatusOr<std::vector<JobView>> SubmitIn(ClusterTransaction& transaction, const std::vector<NewJob>& jobs);
StatusOr<JobView> FinishIn(ClusterTransaction& transaction, const FinishRequest& request);
StatusOr<JobView> CancelIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& id);
StatusOr<JobView> GetIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& id);
StatusOr<JobView> SetHoldIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& id,
                            bool is_held, const std::string& hold);
StatusOr<StoredJobRequest> GetRequestIn(ClusterTransaction& transaction, const std::string& tenant,
                                        const std::string& id);
StatusOr<KeyView> FindKeyIn(ClusterTransaction& transaction, const std::string& tenant, const std::string& key);
StatusOr<JobPage> ListIn(ClusterTransaction& transaction, const ListRequest& request);
StatusOr<Events> WatchIn(ClusterTransaction& transaction, const std::string& tenant, uint64_t cursor, uint32_t most);
StatusOr<Nothing> SetLimitsIn(ClusterTransaction& transaction, const std::string& tenant, const TenantLimits& limits);

// purge_call.cc
StatusOr<SweepResult> PurgeIn(ClusterTransaction& transaction, const std::string& tenant, uint32_t most);

// Hosts (host_calls.cc).
StatusOr<Lease> JoinIn(ClusterTransaction& transaction, const Worker& worker);
StatusOr<Nothing> LeaveIn(ClusterTransaction& transaction, const std::string& worker, uint64_t incarnation);
StatusOr<Renewal> RenewIn(ClusterTransaction& transaction, const RenewRequest& request);
StatusOr<std::vector<HostView>> ListHostsIn(ClusterTransaction& transaction);
StatusOr<Nothing> SetIntakeIn(ClusterTransaction& transaction, const std::string& worker, HostIntake intake);

// A claim looks at a few tenants in each transaction, those with the least use first, so that it locks few rows.
struct ClaimPage {
  // The tenant after which this page begins, by its clock and name.
  std::optional<std::pair<double, std::string>> after;
  bool is_first = true;
};
struct ClaimPageResult {
  Claims claims;
  std::optional<std::pair<double, std::string>> next;  // Unset: there are no more tenants.
};
// Claims up to request.jobs_max jobs (claim_call.cc).
StatusOr<ClaimPageResult> ClaimIn(ClusterTransaction& transaction, const ClaimRequest& request, const ClaimPage& page);

// sweep_call.cc
StatusOr<SweepResult> SweepIn(ClusterTransaction& transaction, uint32_t most);

// Takes back those of the jobs, pairs of a tenant and an id, that are still claims of this host, once their tenants are
// locked. The host is locked.
Status TakeBackClaims(ClusterTransaction& transaction, const HostRow& host,
                      const std::set<std::pair<std::string, std::string>>& jobs, bool counts);

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_SQL_CLUSTER_CALLS_H_
