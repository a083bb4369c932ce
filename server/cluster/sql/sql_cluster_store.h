// SPDX-License-Identifier: Apache-2.0
// SqlClusterStore is a ClusterStore on a database: threads, each with a connection, run the calls of a queue.
//
// Calls that only lock tenants (submits, ends, cancellations) and wait at the same time share a transaction, and so its
// commit. A connection that was lost is opened again by the next call; until then calls are answered kUnavailable.
#ifndef HPVMD_SERVER_CLUSTER_SQL_SQL_CLUSTER_STORE_H_
#define HPVMD_SERVER_CLUSTER_SQL_SQL_CLUSTER_STORE_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "server/cluster/cluster_store.h"
#include "server/cluster/sql/sql_call.h"
#include "server/cluster/sql/sql_session.h"

namespace hpvm::server::cluster {

struct SqlClusterStoreOptions {
  ClusterStoreOptions store;
  // Connections. SQLite: 1.
  uint32_t connections = 1;
  // Calls that wait for a connection; more are answered kUnavailable at once.
  size_t queue_max = 10'000;
  // A call that waits longer is answered kDeadlineExceeded and has no effect.
  Duration queue_timeout = std::chrono::seconds(2);
  // Calls that share a transaction.
  uint32_t group_max = 64;
};

// Thread-safe. Callbacks are called by the store's threads, and at once when a call is refused; they must be quick, and
// may call the store.
class SqlClusterStore final : public ClusterStore {
 public:
  // Opens a connection, on any of the store's threads.
  using Connect = std::function<StatusOr<std::unique_ptr<SqlSession>>()>;

  // Makes the tables if they are missing, and starts the threads. Errors: those of `connect` and of
  // MigrateClusterSchema.
  static StatusOr<std::unique_ptr<SqlClusterStore>> Open(SqlClusterStoreOptions options, Connect connect);
  // Answers what still waits with kUnavailable.
  ~SqlClusterStore() override;
  SqlClusterStore(const SqlClusterStore&) = delete;

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

 private:
  struct Waiting {
    std::unique_ptr<SqlCall> call;
    Time since{0};
  };
  SqlClusterStore(SqlClusterStoreOptions options, Connect connect);
  void Add(std::unique_ptr<SqlCall> call);
  void Work(std::unique_ptr<SqlSession> session);
  // Waits for calls; empty: the store ends.
  std::vector<std::unique_ptr<SqlCall>> Take(std::vector<std::unique_ptr<SqlCall>>* late);
  // Opens the connection unless it is open. Between failed tries, returns the last error.
  Status Connected(std::unique_ptr<SqlSession>& session, Status& last_error, Time& next_try);

  const SqlClusterStoreOptions options_;
  const Connect connect_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> queue_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_SQL_SQL_CLUSTER_STORE_H_
