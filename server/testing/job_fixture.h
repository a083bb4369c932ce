// SPDX-License-Identifier: Apache-2.0
// A core with played executors, a store driven by hand and a clock set by hand, for tests of jobs.
#ifndef HPVMD_SERVER_TESTING_JOB_FIXTURE_H_
#define HPVMD_SERVER_TESTING_JOB_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core.h"
#include "server/testing/fake_executor.h"
#include "server/testing/hand_job_store.h"

namespace hpvm::testing {

// The names of states, without the prefix.
inline std::string StateName(v1::JobState state) { return v1::JobState_Name(state).substr(10); }

// The configuration's, changed by hand: tell the core then.
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

class JobFixture : public ::testing::Test {
 protected:
  JobFixture() {
    spawner_.settle = [this] { Pump(); };
    Start();
  }
  ~JobFixture() override { End(); }

  // The daemon goes, in order; the store's state stays.
  void End() {
    if (core_ != nullptr) {
      core_->Stop();
      Pump();
      spent_ = core_->Spent();
    }
    store_.reset();
    core_.reset();
  }
  // As after a SIGKILL: what was not committed is gone, nobody is told.
  void Crash() {
    store_->hold_commits = store_->hold_posted = true;
    End();
  }
  void Start() {
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
    const Status restored = core_->Restore();
    ASSERT_TRUE(restored.ok()) << restored;
    tenant_ = *core_->FindTenant("ann");
    graph_ = PutGraph("{\"hpvm\": 1}");
    Pump();
  }
  void Restart() {
    End();
    Start();
  }
  void StartFresh(const Config& config) {
    End();
    config_ = config;
    state_ = std::make_unique<StoredState>();
    Start();
  }

  std::string PutGraph(std::string_view text) {
    const std::string hash = ToHex(HashOf(text));
    auto upload = *BlobUpload::Start("graph document", hash, text.size(), 1000, 0, "");
    upload->PayWith(*core_->HoldHostBytes(*tenant_, text.size()));
    EXPECT_TRUE(upload->Add(text).ok());
    EXPECT_TRUE(core_->InsertBlob(*tenant_, Core::BlobKind::kGraph, *upload->Finish()).ok());
    return hash;
  }

  // One f32 input "x", one u32 scalar "i", one output "y"; a symbol "n".
  static PrepareReply Accepted(bool with_index = false) {
    PrepareReply reply;
    reply.summary.emplace();
    reply.summary->name = "double";
    reply.summary->inputs = {{"x", ElementType::kF32, {"n"}}};
    if (with_index) {
      reply.summary->inputs.push_back({"i", ElementType::kU32, {}});
    }
    reply.summary->outputs = {{"y", ElementType::kF32, {"n"}}};
    reply.summary->symbols = {"n"};
    reply.summary->leaf_nodes = 1;
    return reply;
  }
  static RunReply Result(const std::string& bytes) {
    RunReply reply;
    reply.body.assign(bytes.begin(), bytes.end());
    reply.outputs = {{"y", ElementType::kF32, {bytes.size() / 4}, bytes.size(), reply.body}};
    reply.nodes = {{"double", "cpu:0", 0, 10}};
    reply.nodes_run = 1;
    return reply;
  }
  static RunReply Failure(Status status) {
    RunReply reply;
    reply.status = std::move(status);
    return reply;
  }

  v1::SubmitRequest Request(const std::string& key = "") {
    v1::SubmitRequest request;
    request.mutable_document()->set_graph_sha256(graph_);
    v1::InputBinding& input = *request.add_inputs();
    input.set_name("x");
    input.mutable_tensor()->set_type(v1::ELEMENT_TYPE_F32);
    input.mutable_tensor()->add_shape(2);
    input.mutable_tensor()->set_data("abcdefgh");
    request.mutable_options()->set_idempotency_key(key);
    return request;
  }

  struct Answered {
    v1::SubmitResponse response;
    std::optional<Outcome> outcome;
    const std::string& id() const { return response.job().id(); }
    absl::StatusCode code() const { return outcome.has_value() ? outcome->status.code() : absl::StatusCode::kUnknown; }
  };
  using AnsweredRef = std::shared_ptr<Answered>;
  // Answered unless the store or an executor is held.
  AnsweredRef Submit(const v1::SubmitRequest& request) {
    auto answer = std::make_shared<Answered>();
    requests_.push_back(request);  // Borrowed until the answer.
    core_->Submit(tenant_, requests_.back(), &answer->response,
                  [answer](const Outcome& outcome) { answer->outcome = outcome; });
    Pump();
    return answer;
  }
  AnsweredRef Retry(const v1::RetryJobRequest& request) {
    auto answer = std::make_shared<Answered>();
    retries_.push_back(request);
    core_->RetryJob(tenant_, retries_.back(), &answer->response,
                    [answer](const Outcome& outcome) { answer->outcome = outcome; });
    Pump();
    return answer;
  }
  // Of a graph that may have to be prepared first.
  std::string SubmitJob(const v1::SubmitRequest& request) {
    const AnsweredRef answer = Submit(request);
    Prepare();
    Pump();
    EXPECT_EQ(answer->code(), absl::StatusCode::kOk) << (answer->outcome ? answer->outcome->status : Status());
    return answer->id();
  }
  std::string SubmitAfter(const std::string& id, v1::JobDependency::Condition condition = {}) {
    v1::SubmitRequest request = Request();
    v1::JobDependency& after = *request.add_after();
    after.set_job_id(id);
    after.set_condition(condition);
    return SubmitJob(request);
  }

  struct CancelAnswer {
    v1::CancelJobResponse response;
    std::optional<Outcome> outcome;
  };
  std::shared_ptr<CancelAnswer> Cancel(const std::string& id) {
    auto answer = std::make_shared<CancelAnswer>();
    core_->CancelJob(tenant_, id, &answer->response, [answer](const Outcome& outcome) { answer->outcome = outcome; });
    Pump();
    return answer;
  }

  void Pump() {
    if (store_ != nullptr) {
      store_->Pump();
    }
  }
  void Advance(Duration by) {
    clock_.Advance(by);
    core_->OnTime();
    Pump();
  }
  // Answers what waits for a graph to be prepared, if anything does.
  void Prepare(bool with_index = false) {
    Pump();
    for (size_t i = 0; i < spawner_.executors().size(); ++i) {
      FakeExecutor& executor = *spawner_.executors()[i];
      for (size_t p = 0; p < executor.prepares.size(); ++p) {
        if (auto done = std::exchange(executor.prepares[p].done, nullptr)) {
          done(Accepted(with_index));
        }
      }
    }
    Pump();
  }
  // Runs of all executors that are not answered.
  std::vector<std::pair<FakeExecutor*, size_t>> OpenRuns() {
    Prepare(with_index_);
    std::vector<std::pair<FakeExecutor*, size_t>> open;
    for (const auto& executor : spawner_.executors()) {
      for (size_t i = 0; i < executor->runs.size(); ++i) {
        if (executor->runs[i].done) {
          open.emplace_back(executor.get(), i);
        }
      }
    }
    return open;
  }
  // Answers the oldest open run.
  void AnswerRun(RunReply reply) {
    const auto open = OpenRuns();
    ASSERT_FALSE(open.empty());
    open[0].first->AnswerRun(std::move(reply), open[0].second);
    Pump();
  }
  void Die() {
    spawner_.last().Die(Unavailable("The executor process ended (signal 9)."));
    Pump();
  }

  v1::Job Job(const std::string& id) {
    v1::Job job;
    const Status status = core_->GetJob(*tenant_, id, &job);
    EXPECT_TRUE(status.ok()) << status;
    return job;
  }
  std::string State(const std::string& id) { return StateName(Job(id).state()); }
  StoredJob Row(const std::string& id) { return state_->jobs().Find("ann", id).value_or(StoredJob()); }

  // What the core counts is what the store has.
  void ExpectExactQuotas() {
    EXPECT_EQ(core_->CheckAccounts(/*at_rest=*/false), absl::OkStatus());
    uint64_t waiting = 0, running = 0, bytes = 0;
    JobFilter all;
    all.count_max = 1'000'000;
    const std::vector<StoredJob> rows = state_->jobs().List("ann", all).value();
    for (const StoredJob& row : rows) {
      waiting += row.job().state() == v1::JOB_STATE_ACCEPTED ? 1 : 0;
      running += row.job().state() == v1::JOB_STATE_RUNNING ? 1 : 0;
      bytes += row.stored_bytes();
    }
    EXPECT_EQ(tenant_->waiting_jobs(), waiting);
    const CoreSnapshot snapshot = core_->Snapshot(/*with_tenants=*/false);
    EXPECT_EQ(snapshot.jobs_accepted + snapshot.jobs_queued, waiting);
    EXPECT_EQ(snapshot.jobs_running, running);
    EXPECT_EQ(tenant_->stored_job_bytes(), bytes);
  }

  Config config_;
  bool with_index_ = false;
  std::unique_ptr<StoredState> state_ = std::make_unique<StoredState>();
  ManualClock clock_;
  SeededRng rng_{7};
  FakeSpawner spawner_;
  HandPolicies policies_;
  std::unique_ptr<HandJobStore> store_;
  SpentByTenant spent_;  // As a file would keep it.
  std::unique_ptr<Core> core_;
  TenantRef tenant_;
  std::string graph_;
  std::deque<v1::SubmitRequest> requests_;
  std::deque<v1::RetryJobRequest> retries_;
};

}  // namespace hpvm::testing

#endif  // HPVMD_SERVER_TESTING_JOB_FIXTURE_H_
