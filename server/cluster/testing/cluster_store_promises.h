// SPDX-License-Identifier: Apache-2.0
// The promises of ClusterStore as tests, for every store that a test program instantiates:
//
//   INSTANTIATE_TEST_SUITE_P(Model, ClusterStorePromises, testing::Values(StoreFactory{...}));
#ifndef HPVMD_SERVER_CLUSTER_TESTING_CLUSTER_STORE_PROMISES_H_
#define HPVMD_SERVER_CLUSTER_TESTING_CLUSTER_STORE_PROMISES_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/cluster/testing/checked_cluster_store.h"

namespace hpvm::server::cluster {

// Makes an empty store whose time is the clock's.
using StoreFactory = std::function<std::unique_ptr<CheckedClusterStore>(ClusterStoreOptions, const ManualClock&)>;

class ClusterStorePromises : public ::testing::TestWithParam<StoreFactory> {
 protected:
  // Returns the answer of a call, which the store gives at once.
  template <typename T, typename Call>
  StatusOr<T> Ask(const Call& call) {
    std::optional<StatusOr<T>> answer;
    call([&](StatusOr<T> value) { answer = std::move(value); });
    return *std::move(answer);
  }
  StatusOr<std::vector<JobView>> Submit(std::vector<NewJob> jobs) {
    return Ask<std::vector<JobView>>([&](auto done) { store_->Submit(jobs, done); });
  }
  StatusOr<Lease> Join(const std::string& name, const std::string& process, uint64_t joins = 1,
                       const std::string& replaces = "") {
    return Ask<Lease>([&](auto done) {
      store_->Join({.name = name,
                    .has = {"kind:cpu"},
                    .memory_bytes = 10,
                    .process = process,
                    .joins = joins,
                    .replaces = replaces},
                   done);
    });
  }
  std::vector<std::string> Claimed(const std::string& host, uint64_t incarnation, uint64_t number, uint32_t most = 10) {
    const auto claims = Ask<Claims>([&](auto done) { store_->Claim({host, incarnation, number, most}, done); });
    std::vector<std::string> ids;
    for (const Claim& claim : claims.ok() ? claims->jobs : std::vector<Claim>()) {
      ids.push_back(claim.id + "/" + std::to_string(claim.fence));
    }
    if (!claims.ok()) {
      ids.push_back(Message(claims.status()));
    }
    return ids;
  }
  // Claims one job, and returns an empty claim when there is none.
  Claim ClaimOne(const std::string& host, uint64_t incarnation, uint64_t number) {
    const auto claims = Ask<Claims>([&](auto done) { store_->Claim({host, incarnation, number, 1}, done); });
    return claims.ok() && !claims->jobs.empty() ? claims->jobs[0] : Claim();
  }
  StatusOr<Renewal> Renew(const RenewRequest& request) {
    return Ask<Renewal>([&](auto done) { store_->Renew(request, done); });
  }
  StatusOr<Renewal> Renew(const std::string& host, uint64_t incarnation) {
    return Renew({.worker = host, .incarnation = incarnation, .held = {}});
  }
  // The end of the job "a" by the host "one".
  static FinishRequest End(uint64_t fence, JobState state, const std::string& record, bool is_lost = false) {
    return {
        .worker = "one", .job = {"t", "a", fence}, .state = state, .result = "r", .record = record, .is_lost = is_lost};
  }
  StatusOr<JobView> Finish(const FinishRequest& request) {
    return Ask<JobView>([&](auto done) { store_->Finish(request, done); });
  }
  StatusOr<JobView> Finish(const std::string& host, const std::string& id, uint64_t fence,
                           JobState state = JobState::kSucceeded, bool is_lost = false) {
    FinishRequest end = End(fence, state, "", is_lost);
    end.worker = host;
    end.job.id = id;
    return Finish(end);
  }
  JobView Get(const std::string& id) {
    return *Ask<JobView>([&](auto done) { store_->Get("t", id, done); });
  }
  StatusOr<JobView> SetHold(const std::string& id, bool is_held, const std::string& hold) {
    return Ask<JobView>([&](auto done) { store_->SetHold("t", id, is_held, hold, done); });
  }
  Status SetIntake(const std::string& host, HostIntake intake) {
    return Ask<Nothing>([&](auto done) { store_->SetIntake(host, intake, done); }).status();
  }
  StatusOr<KeyView> FindKey(const std::string& tenant, const std::string& key) {
    return Ask<KeyView>([&](auto done) { store_->FindKey(tenant, key, done); });
  }
  StatusOr<StoredJobRequest> GetRequest(const std::string& tenant, const std::string& id) {
    return Ask<StoredJobRequest>([&](auto done) { store_->GetRequest(tenant, id, done); });
  }
  StatusOr<Events> Watch(uint64_t cursor, uint32_t most = 100) {
    return Ask<Events>([&](auto done) { store_->Watch("t", cursor, most, done); });
  }
  std::vector<JobView> List() {
    return Ask<JobPage>([&](auto done) { store_->List({.tenant = "t", .states = {}}, done); })->jobs;
  }
  std::vector<HostView> Hosts() {
    return *Ask<std::vector<HostView>>([&](auto done) { store_->ListHosts(done); });
  }
  void Sweep() {
    while (Ask<SweepResult>([&](auto done) { store_->Sweep(1, done); })->changes > 0) {
    }
  }
  static NewJob Job(const std::string& id) { return {.tenant = "t", .id = id, .request = "r"}; }

  ManualClock clock_;
  // The clock leaps without a sweep between.
  std::unique_ptr<CheckedClusterStore> store_ = GetParam()({.clock_leap_max = std::chrono::hours(24 * 365)}, clock_);
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_TESTING_CLUSTER_STORE_PROMISES_H_
