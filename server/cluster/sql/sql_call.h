// SPDX-License-Identifier: Apache-2.0
// SqlCall is a call of ClusterStore on its way through a database: one transaction, or several for a long claim.
#ifndef HPVMD_SERVER_CLUSTER_SQL_SQL_CALL_H_
#define HPVMD_SERVER_CLUSTER_SQL_SQL_CALL_H_

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "server/cluster/cluster_store.h"
#include "server/cluster/sql/cluster_calls.h"
#include "server/cluster/sql/cluster_transaction.h"

namespace hpvm::server::cluster {

class SqlCall {
 public:
  virtual ~SqlCall() = default;
  // Runs in a transaction that is committed afterwards, and perhaps again in another one when that was undone. A
  // refusal is an answer, and returns OK; an error has to undo the transaction.
  virtual Status Run(ClusterTransaction& transaction) = 0;
  // After a commit: whether another transaction has to follow.
  virtual bool has_more() const { return false; }
  virtual void NextPage() {}
  // Answers, with what Run found, or with an error of the database.
  virtual void End(const Status& status) = 0;

  // The tenants that it locks, known beforehand. Calls with `may_join` lock nothing else, so that several can share a
  // transaction and its commit.
  std::set<std::string> tenants;
  bool may_join = false;
};

// Returns true when the transaction in which a call got this answer has to be undone.
inline bool MustUndo(const ClusterTransaction& transaction, const Status& answer) {
  return transaction.has_failed() || absl::IsInternal(answer) || absl::IsDataLoss(answer);
}

template <typename T>
class OneStepCall final : public SqlCall {
 public:
  using Body = std::function<StatusOr<T>(ClusterTransaction&)>;
  OneStepCall(Body body, ClusterStore::Done<T> done) : body_(std::move(body)), done_(std::move(done)) {}

  Status Run(ClusterTransaction& transaction) override {
    answer_ = body_(transaction);
    return !answer_.ok() && MustUndo(transaction, answer_.status()) ? answer_.status() : absl::OkStatus();
  }
  void End(const Status& status) override { done_(status.ok() ? std::move(answer_) : StatusOr<T>(status)); }

 private:
  const Body body_;
  const ClusterStore::Done<T> done_;
  StatusOr<T> answer_ = Internal("The call did not run.");
};

// The calls of ClusterStore. The answer comes by `done` in SqlCall::End.
std::unique_ptr<SqlCall> SubmitCall(std::vector<NewJob> jobs, ClusterStore::Done<std::vector<JobView>> done);
std::unique_ptr<SqlCall> JoinCall(Worker worker, ClusterStore::Done<Lease> done);
std::unique_ptr<SqlCall> LeaveCall(std::string worker, uint64_t incarnation, ClusterStore::Done<Nothing> done);
std::unique_ptr<SqlCall> RenewCall(RenewRequest request, ClusterStore::Done<Renewal> done);
std::unique_ptr<SqlCall> ClaimingCall(ClaimRequest request, ClusterStore::Done<Claims> done);
std::unique_ptr<SqlCall> FinishCall(FinishRequest request, ClusterStore::Done<JobView> done);
std::unique_ptr<SqlCall> CancelCall(std::string tenant, std::string id, ClusterStore::Done<JobView> done);
std::unique_ptr<SqlCall> GetCall(std::string tenant, std::string id, ClusterStore::Done<JobView> done);
std::unique_ptr<SqlCall> GetRequestCall(std::string tenant, std::string id, ClusterStore::Done<StoredJobRequest> done);
std::unique_ptr<SqlCall> FindKeyCall(std::string tenant, std::string key, ClusterStore::Done<KeyView> done);
std::unique_ptr<SqlCall> SetHoldCall(std::string tenant, std::string id, bool is_held, std::string hold,
                                     ClusterStore::Done<JobView> done);
std::unique_ptr<SqlCall> ListCall(ListRequest request, ClusterStore::Done<JobPage> done);
std::unique_ptr<SqlCall> ListHostsCall(ClusterStore::Done<std::vector<HostView>> done);
std::unique_ptr<SqlCall> WatchCall(std::string tenant, uint64_t cursor, uint32_t most, ClusterStore::Done<Events> done);
std::unique_ptr<SqlCall> SetLimitsCall(std::string tenant, TenantLimits limits, ClusterStore::Done<Nothing> done);
std::unique_ptr<SqlCall> PurgeCall(std::string tenant, uint32_t most, ClusterStore::Done<SweepResult> done);
std::unique_ptr<SqlCall> SetIntakeCall(std::string worker, HostIntake intake, ClusterStore::Done<Nothing> done);
std::unique_ptr<SqlCall> SweepingCall(uint32_t most, ClusterStore::Done<SweepResult> done);

// Runs the calls, in one transaction if each may join, and answers each. A transaction that was undone because of
// another one is tried again; when one call of several fails, each runs by itself. Returns an error when no transaction
// could be begun, as the connection was lost before; then no call was answered, and all may run on another session.
Status RunCalls(SqlSession& session, const ClusterStoreOptions& options, const ClusterTransaction::OnChange* on_change,
                std::span<const std::unique_ptr<SqlCall>> calls);

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_SQL_SQL_CALL_H_
