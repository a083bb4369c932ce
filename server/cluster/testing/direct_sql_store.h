// SPDX-License-Identifier: Apache-2.0
// DirectSqlStore is the cluster's store on a database without its threads: each call runs in the caller's, in a
// transaction of its own.
#ifndef HPVMD_SERVER_CLUSTER_TESTING_DIRECT_SQL_STORE_H_
#define HPVMD_SERVER_CLUSTER_TESTING_DIRECT_SQL_STORE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/sql/sql_call.h"
#include "server/cluster/testing/checked_cluster_store.h"

namespace hpvm::server::cluster {

// Not thread-safe.
class DirectSqlStore final : public CheckedClusterStore {
 public:
  // Makes the tables; a failure ends the program.
  DirectSqlStore(ClusterStoreOptions options, std::unique_ptr<SqlSession> session);

  void Submit(std::vector<NewJob> jobs, Done<std::vector<JobView>> done) override;
  void Join(Worker worker, Done<Lease> done) override;
  void Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) override;
  void Renew(RenewRequest request, Done<Renewal> done) override;
  void Claim(ClaimRequest request, Done<Claims> done) override;
  void Finish(FinishRequest request, Done<JobView> done) override;
  void Cancel(std::string tenant, std::string id, Done<JobView> done) override;
  void Get(std::string tenant, std::string id, Done<JobView> done) override;
  void GetRequest(std::string tenant, std::string id, Done<StoredJobRequest> done) override;
  void FindKey(std::string tenant, std::string key, Done<KeyView> done) override;
  void SetHold(std::string tenant, std::string id, bool is_held, std::string hold, Done<JobView> done) override;
  void List(ListRequest request, Done<JobPage> done) override;
  void ListHosts(Done<std::vector<HostView>> done) override;
  void Watch(std::string tenant, uint64_t cursor, uint32_t most, Done<Events> done) override;
  void Purge(std::string tenant, uint32_t most, Done<SweepResult> done) override;
  void SetLimits(std::string tenant, TenantLimits limits, Done<Nothing> done) override;
  void SetIntake(std::string worker, HostIntake intake, Done<Nothing> done) override;
  void Sweep(uint32_t most, Done<SweepResult> done) override;

  size_t running(const std::string& tenant) const override;
  size_t waiting(const std::string& tenant) const override;
  SqlSession& session() { return *session_; }

 private:
  void Run(std::unique_ptr<SqlCall> call);

  const ClusterStoreOptions options_;
  const std::unique_ptr<SqlSession> session_;
  const ClusterTransaction::OnChange tell_;
  std::map<std::pair<std::string, std::string>, NewJob> requests_;  // Keyed by tenant and id.
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_TESTING_DIRECT_SQL_STORE_H_
