// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/testing/direct_sql_store.h"

#include "server/cluster/sql/cluster_schema.h"

namespace hpvm::server::cluster {
namespace {

constexpr SqlStatement kCount{"SELECT count(*) FROM cluster_jobs WHERE tenant = ?1 AND state = ?2"};
constexpr SqlStatement kCounters{"SELECT waiting, running FROM cluster_tenants WHERE tenant = ?1"};

// Returns the tenant's counter, which has to equal the number of its rows.
size_t Counted(SqlSession& session, const std::string& tenant, JobState state) {
  const StatusOr<SqlRows> rows = session.Run(kCount, {tenant, static_cast<int64_t>(state)});
  const StatusOr<SqlRows> counters = session.Run(kCounters, {tenant});
  HPVMD_CHECK(rows.ok() && counters.ok() && rows->size() == 1);
  const int64_t counter = counters->empty() ? 0 : (*counters)[0].Int(state == JobState::kWaiting ? 0 : 1);
  return (*rows)[0].Int(0) == counter ? static_cast<size_t>(counter) : SIZE_MAX;
}

}  // namespace

DirectSqlStore::DirectSqlStore(ClusterStoreOptions options, std::unique_ptr<SqlSession> session)
    : options_(options), session_(std::move(session)), tell_([this](const JobView& before, const JobView& after) {
        if (on_change) {
          on_change(requests_[{after.tenant, after.id}], before, after);
        }
      }) {
  HPVMD_CHECK(MigrateClusterSchema(*session_).ok());
}

void DirectSqlStore::Run(std::unique_ptr<SqlCall> call) {
  if (const Status begun = RunCalls(*session_, options_, &tell_, {&call, 1}); !begun.ok()) {
    call->End(begun);
  }
}

void DirectSqlStore::Submit(std::vector<NewJob> jobs, Done<std::vector<JobView>> done) {
  for (const NewJob& job : jobs) {
    requests_.try_emplace({job.tenant, job.id}, job);
  }
  Run(SubmitCall(std::move(jobs), std::move(done)));
}
void DirectSqlStore::Join(Worker worker, Done<Lease> done) { Run(JoinCall(std::move(worker), std::move(done))); }
void DirectSqlStore::Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) {
  Run(LeaveCall(std::move(worker), incarnation, std::move(done)));
}
void DirectSqlStore::Renew(RenewRequest request, Done<Renewal> done) {
  Run(RenewCall(std::move(request), std::move(done)));
}
void DirectSqlStore::Claim(ClaimRequest request, Done<Claims> done) {
  Run(ClaimingCall(std::move(request), std::move(done)));
}
void DirectSqlStore::Finish(FinishRequest request, Done<JobView> done) {
  Run(FinishCall(std::move(request), std::move(done)));
}
void DirectSqlStore::Cancel(std::string tenant, std::string id, Done<JobView> done) {
  Run(CancelCall(std::move(tenant), std::move(id), std::move(done)));
}
void DirectSqlStore::Get(std::string tenant, std::string id, Done<JobView> done) {
  Run(GetCall(std::move(tenant), std::move(id), std::move(done)));
}
void DirectSqlStore::GetRequest(std::string tenant, std::string id, Done<StoredJobRequest> done) {
  Run(GetRequestCall(std::move(tenant), std::move(id), std::move(done)));
}
void DirectSqlStore::FindKey(std::string tenant, std::string key, Done<KeyView> done) {
  Run(FindKeyCall(std::move(tenant), std::move(key), std::move(done)));
}
void DirectSqlStore::SetHold(std::string tenant, std::string id, bool is_held, std::string hold, Done<JobView> done) {
  Run(SetHoldCall(std::move(tenant), std::move(id), is_held, std::move(hold), std::move(done)));
}
void DirectSqlStore::List(ListRequest request, Done<JobPage> done) {
  Run(ListCall(std::move(request), std::move(done)));
}
void DirectSqlStore::ListHosts(Done<std::vector<HostView>> done) { Run(ListHostsCall(std::move(done))); }
void DirectSqlStore::Watch(std::string tenant, uint64_t cursor, uint32_t most, Done<Events> done) {
  Run(WatchCall(std::move(tenant), cursor, most, std::move(done)));
}
void DirectSqlStore::Purge(std::string tenant, uint32_t most, Done<SweepResult> done) {
  Run(PurgeCall(std::move(tenant), most, std::move(done)));
}
void DirectSqlStore::SetLimits(std::string tenant, TenantLimits limits, Done<Nothing> done) {
  Run(SetLimitsCall(std::move(tenant), limits, std::move(done)));
}
void DirectSqlStore::SetIntake(std::string worker, HostIntake intake, Done<Nothing> done) {
  Run(SetIntakeCall(std::move(worker), intake, std::move(done)));
}
void DirectSqlStore::Sweep(uint32_t most, Done<SweepResult> done) { Run(SweepingCall(most, std::move(done))); }

size_t DirectSqlStore::running(const std::string& tenant) const {
  return Counted(*session_, tenant, JobState::kRunning);
}
size_t DirectSqlStore::waiting(const std::string& tenant) const {
  return Counted(*session_, tenant, JobState::kWaiting);
}

}  // namespace hpvm::server::cluster
