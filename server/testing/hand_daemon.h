// SPDX-License-Identifier: Apache-2.0
// HandDaemon is a core with simulated executors, a store driven by hand and a clock set by hand. Independent of any
// test framework.
#ifndef HPVMD_SERVER_TESTING_HAND_DAEMON_H_
#define HPVMD_SERVER_TESTING_HAND_DAEMON_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "server/core/core.h"
#include "server/testing/fake_executor.h"
#include "server/testing/hand_job_store.h"

namespace hpvm::server::testing {

// The configuration's policies, changed by hand: tell the core afterwards.
class HandPolicies final : public TenantPolicies {
 public:
  TenantPolicyRef Find(std::string_view name, const Config& config) const override {
    if (gone.contains(name)) {
      return nullptr;
    }
    TenantPolicy policy = *DefaultPolicy(name, config);
    if (const auto found = changes.find(name); found != changes.end()) {
      found->second(policy);
    }
    return std::make_shared<const TenantPolicy>(std::move(policy));
  }
  std::map<std::string, std::function<void(TenantPolicy&)>, std::less<>> changes;
  std::set<std::string, std::less<>> gone;
};

// The daemon and its stored state; the class that uses it determines the order of events.
class HandDaemon {
 protected:
  // Stops the daemon in order; the store's state stays.
  void End() {
    if (core_ != nullptr) {
      spawner_.FailLate();  // Stop waits for it.
      core_->Stop();
      Pump();
      spent_ = core_->tenants().Spent();
    }
    store_.reset();
    core_.reset();
  }
  // As after a SIGKILL: uncommitted writes are lost, nobody is told.
  void Crash() {
    store_->hold_commits = store_->hold_posted = true;
    End();
  }
  // Starts on the stored state, without executors.
  Status StartCore() {
    spawner_.executors().clear();
    store_ = std::make_unique<HandJobStore>(*state_, clock_);
    CoreOptions options;
    options.config = config_;
    options.clock = &clock_;
    options.rng = &rng_;
    options.spawner = &spawner_;
    options.jobs = store_.get();
    options.policies = &policies_;
    options.spent = spent_;
    core_ = std::make_unique<Core>(std::move(options));
    return core_->Restore();
  }
  // Performs the store's pending work, unless it is held, and requests to executors that have ended.
  void Pump() {
    if (store_ != nullptr) {
      do {
        store_->Pump();
      } while (spawner_.FailLate());
    }
  }

  // One f32 input "x", one u32 scalar "i", one output "y"; a symbol "n".
  static internal::Prepared Accepted(bool with_index = false) {
    internal::Prepared reply =
        AcceptedGraph("double", {Port("x", ElementType::kF32, {"n"})}, {Port("y", ElementType::kF32, {"n"})});
    reply.add_needs("cpu:0");
    if (with_index) {
      *reply.mutable_summary()->add_inputs() = Port("i", ElementType::kU32, {});
    }
    reply.mutable_summary()->add_symbols("n");
    reply.mutable_summary()->set_leaf_nodes(1);
    return reply;
  }
  static supervisor::RunReply Result(const std::string& bytes) {
    supervisor::RunReply reply;
    AddInline(reply, "y", ElementType::kF32, {bytes.size() / 4}, bytes);
    *reply.done.add_nodes() = Placement("double", "cpu:0", 0, 10);
    reply.done.set_nodes_run(1);
    return reply;
  }
  static supervisor::RunReply Failure(const Status& status) { return FailedRun(status); }

  Config config_;
  std::unique_ptr<StoredState> state_ = std::make_unique<StoredState>();
  ManualClock clock_;
  SeededRng rng_{7};
  FakeSpawner spawner_;
  HandPolicies policies_;
  std::unique_ptr<HandJobStore> store_;
  SpentByTenant spent_;  // As a file would keep it.
  std::unique_ptr<Core> core_;
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_HAND_DAEMON_H_
