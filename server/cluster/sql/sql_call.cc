// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/sql/sql_call.h"

namespace hpvm::server::cluster {
namespace {

// Transactions that were undone because of others, before the caller is told to try again.
constexpr int kTriesMax = 10;
// Pages of tenants that one claim looks at.
constexpr int kPagesMax = 64;
// A larger submit has a transaction of its own, so that other tenants' calls do not wait for it.
constexpr size_t kJoiningJobsMax = 64;
constexpr char kTenant[] = "The name of a tenant";

template <typename T, typename Body>
std::unique_ptr<OneStepCall<T>> OneStep(Body body, ClusterStore::Done<T> done) {
  return std::make_unique<OneStepCall<T>>(std::move(body), std::move(done));
}

// A call that locks these tenants and nothing else. When what it says is refused, it asks the database for nothing, so
// that it cannot spoil the transaction for others.
template <typename T, typename Body>
std::unique_ptr<SqlCall> Joining(Status checked, std::set<std::string> tenants, Body body, ClusterStore::Done<T> done) {
  std::unique_ptr<OneStepCall<T>> call;
  if (checked.ok()) {
    call = OneStep<T>(std::move(body), std::move(done));
    call->tenants = std::move(tenants);
  } else {
    call = OneStep<T>([checked](ClusterTransaction&) { return StatusOr<T>(checked); }, std::move(done));
  }
  call->may_join = true;
  return call;
}

class PagedClaim final : public SqlCall {
 public:
  PagedClaim(ClaimRequest request, ClusterStore::Done<Claims> done)
      : request_(std::move(request)), done_(std::move(done)) {}

  Status Run(ClusterTransaction& transaction) override {
    answer_ = ClaimIn(transaction, request_, page_);
    return !answer_.ok() && MustUndo(transaction, answer_.status()) ? answer_.status() : absl::OkStatus();
  }
  bool has_more() const override {
    return answer_.ok() && answer_->claims.jobs.empty() && answer_->next.has_value() && pages_ < kPagesMax;
  }
  void NextPage() override {
    page_ = {.after = answer_->next, .is_first = false};
    ++pages_;
  }
  void End(const Status& status) override {
    if (!status.ok() || !answer_.ok()) {
      return done_(status.ok() ? answer_.status() : status);
    }
    done_(std::move(answer_->claims));
  }

 private:
  const ClaimRequest request_;
  const ClusterStore::Done<Claims> done_;
  ClaimPage page_;
  int pages_ = 1;
  StatusOr<ClaimPageResult> answer_ = Internal("The call did not run.");
};

Status RunOnce(SqlSession& session, const ClusterStoreOptions& options, const ClusterTransaction::OnChange* on_change,
               std::span<const std::unique_ptr<SqlCall>> calls, bool* has_begun) {
  ClusterTransaction transaction(session, options, on_change);
  HPVMD_RETURN_IF_ERROR(transaction.Begin());
  *has_begun = true;
  std::set<std::string> tenants;
  for (const std::unique_ptr<SqlCall>& call : calls) {
    tenants.insert(call->tenants.begin(), call->tenants.end());
  }
  for (const std::string& tenant : tenants) {
    HPVMD_RETURN_IF_ERROR(transaction.LockTenant(tenant).status());
  }
  for (const std::unique_ptr<SqlCall>& call : calls) {
    HPVMD_RETURN_IF_ERROR(call->Run(transaction));
  }
  return transaction.Commit();
}

Status RunOften(SqlSession& session, const ClusterStoreOptions& options, const ClusterTransaction::OnChange* on_change,
                std::span<const std::unique_ptr<SqlCall>> calls, bool* has_begun) {
  for (int tries = 1;; ++tries) {
    Status done = RunOnce(session, options, on_change, calls, has_begun);
    if (!absl::IsAborted(done)) {
      return done;
    }
    if (tries == kTriesMax) {
      return Unavailable("The database undid a transaction " + std::to_string(kTriesMax) +
                         " times because of others: " + Message(done));
    }
  }
}

}  // namespace

std::unique_ptr<SqlCall> SubmitCall(std::vector<NewJob> jobs, ClusterStore::Done<std::vector<JobView>> done) {
  std::set<std::string> tenants;
  for (const NewJob& job : jobs) {
    tenants.insert(job.tenant);
  }
  Status checked = CheckBatch(jobs);
  const bool is_small = jobs.size() <= kJoiningJobsMax;
  std::unique_ptr<SqlCall> call = Joining<std::vector<JobView>>(
      std::move(checked), std::move(tenants),
      [jobs = std::move(jobs)](ClusterTransaction& transaction) { return SubmitIn(transaction, jobs); },
      std::move(done));
  call->may_join = is_small;
  return call;
}

std::unique_ptr<SqlCall> JoinCall(Worker worker, ClusterStore::Done<Lease> done) {
  return OneStep<Lease>(
      [worker = std::move(worker)](ClusterTransaction& transaction) { return JoinIn(transaction, worker); },
      std::move(done));
}

std::unique_ptr<SqlCall> LeaveCall(std::string worker, uint64_t incarnation, ClusterStore::Done<Nothing> done) {
  return OneStep<Nothing>([worker = std::move(worker), incarnation](
                              ClusterTransaction& transaction) { return LeaveIn(transaction, worker, incarnation); },
                          std::move(done));
}

std::unique_ptr<SqlCall> RenewCall(RenewRequest request, ClusterStore::Done<Renewal> done) {
  return OneStep<Renewal>(
      [request = std::move(request)](ClusterTransaction& transaction) { return RenewIn(transaction, request); },
      std::move(done));
}

std::unique_ptr<SqlCall> ClaimingCall(ClaimRequest request, ClusterStore::Done<Claims> done) {
  return std::make_unique<PagedClaim>(std::move(request), std::move(done));
}

std::unique_ptr<SqlCall> FinishCall(FinishRequest request, ClusterStore::Done<JobView> done) {
  std::set<std::string> tenants = {request.job.tenant};
  Status checked = CheckFinish(request);
  return Joining<JobView>(
      std::move(checked), std::move(tenants),
      [request = std::move(request)](ClusterTransaction& transaction) { return FinishIn(transaction, request); },
      std::move(done));
}

std::unique_ptr<SqlCall> CancelCall(std::string tenant, std::string id, ClusterStore::Done<JobView> done) {
  Status checked = CheckNames(tenant, id);
  return Joining<JobView>(
      std::move(checked), {tenant},
      [tenant, id = std::move(id)](ClusterTransaction& transaction) { return CancelIn(transaction, tenant, id); },
      std::move(done));
}

std::unique_ptr<SqlCall> GetCall(std::string tenant, std::string id, ClusterStore::Done<JobView> done) {
  Status checked = CheckNames(tenant, id);
  return Joining<JobView>(
      std::move(checked), {},
      [tenant = std::move(tenant), id = std::move(id)](ClusterTransaction& transaction) {
        return GetIn(transaction, tenant, id);
      },
      std::move(done));
}

std::unique_ptr<SqlCall> GetRequestCall(std::string tenant, std::string id, ClusterStore::Done<StoredJobRequest> done) {
  Status checked = CheckNames(tenant, id);
  return Joining<StoredJobRequest>(
      std::move(checked), {},
      [tenant = std::move(tenant), id = std::move(id)](ClusterTransaction& transaction) {
        return GetRequestIn(transaction, tenant, id);
      },
      std::move(done));
}

std::unique_ptr<SqlCall> FindKeyCall(std::string tenant, std::string key, ClusterStore::Done<KeyView> done) {
  Status checked = CheckName(kTenant, tenant);
  checked.Update(CheckName("The key of a job", key));
  return Joining<KeyView>(
      std::move(checked), {},
      [tenant = std::move(tenant), key = std::move(key)](ClusterTransaction& transaction) {
        return FindKeyIn(transaction, tenant, key);
      },
      std::move(done));
}

std::unique_ptr<SqlCall> SetHoldCall(std::string tenant, std::string id, bool is_held, std::string hold,
                                     ClusterStore::Done<JobView> done) {
  Status checked = CheckNames(tenant, id);
  checked.Update(CheckHold(hold));
  return Joining<JobView>(
      std::move(checked), {tenant},
      [tenant, id = std::move(id), is_held, hold = std::move(hold)](ClusterTransaction& transaction) {
        return SetHoldIn(transaction, tenant, id, is_held, hold);
      },
      std::move(done));
}

std::unique_ptr<SqlCall> ListCall(ListRequest request, ClusterStore::Done<JobPage> done) {
  Status checked = CheckName(kTenant, request.tenant);
  return Joining<JobPage>(
      std::move(checked), {},
      [request = std::move(request)](ClusterTransaction& transaction) { return ListIn(transaction, request); },
      std::move(done));
}

std::unique_ptr<SqlCall> ListHostsCall(ClusterStore::Done<std::vector<HostView>> done) {
  return Joining<std::vector<HostView>>(
      absl::OkStatus(), {}, [](ClusterTransaction& transaction) { return ListHostsIn(transaction); }, std::move(done));
}

std::unique_ptr<SqlCall> WatchCall(std::string tenant, uint64_t cursor, uint32_t most,
                                   ClusterStore::Done<Events> done) {
  Status checked = CheckName(kTenant, tenant);
  return Joining<Events>(
      std::move(checked), {},
      [tenant = std::move(tenant), cursor, most](ClusterTransaction& transaction) {
        return WatchIn(transaction, tenant, cursor, most);
      },
      std::move(done));
}

std::unique_ptr<SqlCall> SetLimitsCall(std::string tenant, TenantLimits limits, ClusterStore::Done<Nothing> done) {
  Status checked = CheckName(kTenant, tenant);
  return Joining<Nothing>(
      std::move(checked), {tenant},
      [tenant, limits](ClusterTransaction& transaction) { return SetLimitsIn(transaction, tenant, limits); },
      std::move(done));
}

std::unique_ptr<SqlCall> PurgeCall(std::string tenant, uint32_t most, ClusterStore::Done<SweepResult> done) {
  return OneStep<SweepResult>([tenant = std::move(tenant),
                               most](ClusterTransaction& transaction) { return PurgeIn(transaction, tenant, most); },
                              std::move(done));
}

std::unique_ptr<SqlCall> SetIntakeCall(std::string worker, HostIntake intake, ClusterStore::Done<Nothing> done) {
  return OneStep<Nothing>([worker = std::move(worker), intake](
                              ClusterTransaction& transaction) { return SetIntakeIn(transaction, worker, intake); },
                          std::move(done));
}

std::unique_ptr<SqlCall> SweepingCall(uint32_t most, ClusterStore::Done<SweepResult> done) {
  return OneStep<SweepResult>([most](ClusterTransaction& transaction) { return SweepIn(transaction, most); },
                              std::move(done));
}

Status RunCalls(SqlSession& session, const ClusterStoreOptions& options, const ClusterTransaction::OnChange* on_change,
                std::span<const std::unique_ptr<SqlCall>> calls) {
  bool has_begun = false;
  Status done = RunOften(session, options, on_change, calls, &has_begun);
  if (!has_begun) {
    return done;
  }
  if (!done.ok() && calls.size() > 1 && !absl::IsUnavailable(done)) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (const Status begun = RunCalls(session, options, on_change, calls.subspan(i, 1)); !begun.ok()) {
        calls[i]->End(begun);
      }
    }
    return absl::OkStatus();
  }
  while (done.ok() && calls.size() == 1 && calls[0]->has_more()) {
    calls[0]->NextPage();
    done = RunOften(session, options, on_change, calls, &has_begun);
  }
  for (const std::unique_ptr<SqlCall>& call : calls) {
    call->End(done);
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server::cluster
