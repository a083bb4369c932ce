// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/sql/sql_cluster_store.h"

#include <algorithm>
#include <utility>

#include "server/cluster/sql/cluster_schema.h"

namespace hpvm::server::cluster {
namespace {

// Between two tries to connect; calls are answered with the last error meanwhile.
constexpr Duration kReconnectAfter = std::chrono::milliseconds(100);

}  // namespace

StatusOr<std::unique_ptr<SqlClusterStore>> SqlClusterStore::Open(SqlClusterStoreOptions options, Connect connect) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqlSession> first, connect());
  HPVMD_RETURN_IF_ERROR(MigrateClusterSchema(*first));
  std::unique_ptr<SqlClusterStore> store(new SqlClusterStore(options, std::move(connect)));
  for (uint32_t i = 0; i < std::max(1u, options.connections); ++i) {
    store->threads_.emplace_back(
        [raw = store.get(), session = std::move(first)]() mutable { raw->Work(std::move(session)); });
    first = nullptr;
  }
  return store;
}

SqlClusterStore::SqlClusterStore(SqlClusterStoreOptions options, Connect connect)
    : options_(options), connect_(std::move(connect)) {}

SqlClusterStore::~SqlClusterStore() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  for (const Waiting& waiting : queue_) {
    waiting.call->End(Unavailable("The server stops."));
  }
}

void SqlClusterStore::Add(std::unique_ptr<SqlCall> call) {
  Status refused;
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) {
      refused = Unavailable("The server stops.");
    } else if (queue_.size() >= options_.queue_max) {
      refused = Unavailable("The database answers too slowly: " + std::to_string(queue_.size()) +
                            " calls wait for it, which is the limit.");
    } else {
      queue_.push_back({std::move(call), RealClock().Now()});
    }
  }
  if (refused.ok()) {
    changed_.notify_one();
  } else {
    call->End(refused);
  }
}

std::vector<std::unique_ptr<SqlCall>> SqlClusterStore::Take(std::vector<std::unique_ptr<SqlCall>>* late) {
  std::unique_lock lock(mutex_);
  std::vector<std::unique_ptr<SqlCall>> group;
  while (group.empty() && late->empty()) {
    changed_.wait(lock, [&] { return is_ending_ || !queue_.empty(); });
    if (is_ending_) {
      return group;
    }
    const Time now = RealClock().Now();
    while (!queue_.empty() && group.size() < options_.group_max) {
      if (now - queue_.front().since >= options_.queue_timeout) {
        late->push_back(std::move(queue_.front().call));
      } else if (!group.empty() && (!group.front()->may_join || !queue_.front().call->may_join)) {
        break;
      } else {
        group.push_back(std::move(queue_.front().call));
      }
      queue_.pop_front();
    }
  }
  return group;
}

Status SqlClusterStore::Connected(std::unique_ptr<SqlSession>& session, Status& last_error, Time& next_try) {
  if (session != nullptr && !session->is_broken()) {
    return absl::OkStatus();
  }
  session = nullptr;
  if (RealClock().Now() < next_try) {
    return last_error;
  }
  StatusOr<std::unique_ptr<SqlSession>> opened = connect_();
  // Another database may be there than before.
  last_error = opened.ok() ? MigrateClusterSchema(**opened) : opened.status();
  if (!last_error.ok()) {
    next_try = RealClock().Now() + kReconnectAfter;
    // Callers try again; that the password is wrong, say, may be mended meanwhile.
    last_error = Unavailable("The database of the cluster is not available: " + Message(last_error));
    return last_error;
  }
  session = *std::move(opened);
  return absl::OkStatus();
}

void SqlClusterStore::Work(std::unique_ptr<SqlSession> session) {
  Status last_error;
  Time next_try{0};
  while (true) {
    std::vector<std::unique_ptr<SqlCall>> late;
    const std::vector<std::unique_ptr<SqlCall>> group = Take(&late);
    if (group.empty() && late.empty()) {
      return;
    }
    for (const std::unique_ptr<SqlCall>& call : late) {
      call->End(DeadlineExceeded("The call waited for the database for " +
                                 std::to_string(options_.queue_timeout / std::chrono::milliseconds(1)) +
                                 " ms and was not begun."));
    }
    if (group.empty()) {
      continue;
    }
    // The second time is for a connection that was lost while nobody used it.
    Status begun;
    for (int tries = 0; tries < 2; ++tries) {
      begun = Connected(session, last_error, next_try);
      if (begun.ok()) {
        begun = RunCalls(*session, options_.store, nullptr, group);
      }
      if (begun.ok()) {
        break;
      }
    }
    for (const std::unique_ptr<SqlCall>& call : group) {
      if (!begun.ok()) {
        call->End(begun);
      }
    }
  }
}

void SqlClusterStore::Submit(std::vector<NewJob> jobs, Done<std::vector<JobView>> done) {
  Add(SubmitCall(std::move(jobs), std::move(done)));
}
void SqlClusterStore::Join(Worker worker, Done<Lease> done) { Add(JoinCall(std::move(worker), std::move(done))); }
void SqlClusterStore::Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) {
  Add(LeaveCall(std::move(worker), incarnation, std::move(done)));
}
void SqlClusterStore::Renew(RenewRequest request, Done<Renewal> done) {
  Add(RenewCall(std::move(request), std::move(done)));
}
void SqlClusterStore::Claim(ClaimRequest request, Done<Claims> done) {
  Add(ClaimingCall(std::move(request), std::move(done)));
}
void SqlClusterStore::Finish(FinishRequest request, Done<JobView> done) {
  Add(FinishCall(std::move(request), std::move(done)));
}
void SqlClusterStore::Cancel(std::string tenant, std::string id, Done<JobView> done) {
  Add(CancelCall(std::move(tenant), std::move(id), std::move(done)));
}
void SqlClusterStore::Get(std::string tenant, std::string id, Done<JobView> done) {
  Add(GetCall(std::move(tenant), std::move(id), std::move(done)));
}
void SqlClusterStore::GetRequest(std::string tenant, std::string id, Done<StoredJobRequest> done) {
  Add(GetRequestCall(std::move(tenant), std::move(id), std::move(done)));
}
void SqlClusterStore::FindKey(std::string tenant, std::string key, Done<KeyView> done) {
  Add(FindKeyCall(std::move(tenant), std::move(key), std::move(done)));
}
void SqlClusterStore::SetHold(std::string tenant, std::string id, bool is_held, std::string hold, Done<JobView> done) {
  Add(SetHoldCall(std::move(tenant), std::move(id), is_held, std::move(hold), std::move(done)));
}
void SqlClusterStore::List(ListRequest request, Done<JobPage> done) {
  Add(ListCall(std::move(request), std::move(done)));
}
void SqlClusterStore::ListHosts(Done<std::vector<HostView>> done) { Add(ListHostsCall(std::move(done))); }
void SqlClusterStore::Watch(std::string tenant, uint64_t cursor, uint32_t most, Done<Events> done) {
  Add(WatchCall(std::move(tenant), cursor, most, std::move(done)));
}
void SqlClusterStore::Purge(std::string tenant, uint32_t most, Done<SweepResult> done) {
  Add(PurgeCall(std::move(tenant), most, std::move(done)));
}
void SqlClusterStore::SetLimits(std::string tenant, TenantLimits limits, Done<Nothing> done) {
  Add(SetLimitsCall(std::move(tenant), limits, std::move(done)));
}
void SqlClusterStore::SetIntake(std::string worker, HostIntake intake, Done<Nothing> done) {
  Add(SetIntakeCall(std::move(worker), intake, std::move(done)));
}
void SqlClusterStore::Sweep(uint32_t most, Done<SweepResult> done) { Add(SweepingCall(most, std::move(done))); }

}  // namespace hpvm::server::cluster
