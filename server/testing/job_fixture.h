// SPDX-License-Identifier: Apache-2.0
// A hand-driven daemon with one tenant and one graph, for tests of jobs.
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

#include "server/testing/hand_daemon.h"

namespace hpvm::server::testing {

// The names of states, without the prefix.
inline std::string StateName(v1::JobState state) { return v1::JobState_Name(state).substr(10); }

class JobFixture : public ::testing::Test, protected HandDaemon {
 protected:
  JobFixture() {
    spawner_.settle = [this] { Pump(); };
    Start();
  }
  ~JobFixture() override { End(); }

  void Start() {
    const Status started = StartCore();
    ASSERT_TRUE(started.ok()) << started;
    tenant_ = *core_->tenants().FindTenant("ann", /*also_disabled=*/true);
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
    upload->PayWith(*core_->graphs().HoldHostBytes(*tenant_, text.size()));
    EXPECT_TRUE(upload->Add(text).ok());
    EXPECT_TRUE(core_->graphs().InsertBlob(*tenant_, Graphs::BlobKind::kGraph, *upload->Finish()).ok());
    return hash;
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
  // Answered at once unless the store or an executor is held.
  AnsweredRef Submit(const v1::SubmitRequest& request) {
    auto answer = std::make_shared<Answered>();
    requests_.push_back(request);  // Borrowed until the response.
    core_->job_submitter().Submit(tenant_, requests_.back(), &answer->response,
                                  [answer](const Outcome& outcome) { answer->outcome = outcome; });
    Pump();
    return answer;
  }
  AnsweredRef Retry(const v1::RetryJobRequest& request) {
    auto answer = std::make_shared<Answered>();
    retries_.push_back(request);
    core_->job_submitter().RetryJob(tenant_, retries_.back(), &answer->response,
                                    [answer](const Outcome& outcome) { answer->outcome = outcome; });
    Pump();
    return answer;
  }
  // For a graph that may have to be prepared first.
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
    core_->job_wishes().CancelJob(tenant_, id, &answer->response,
                                  [answer](const Outcome& outcome) { answer->outcome = outcome; });
    Pump();
    return answer;
  }

  struct HoldAnswer {
    v1::SetJobHoldResponse response;
    std::optional<Outcome> outcome;
    absl::StatusCode code() const { return outcome.has_value() ? outcome->status.code() : absl::StatusCode::kUnknown; }
  };
  std::shared_ptr<HoldAnswer> SetHold(const std::string& id, bool held, const JobCommands::Caller& caller = {"uid 7"},
                                      const std::string& reason = "") {
    auto answer = std::make_shared<HoldAnswer>();
    v1::SetJobHoldRequest request;
    request.set_job_id(id);
    request.set_held(held);
    request.set_reason(reason);
    core_->job_wishes().SetJobHold(tenant_, request, caller, &answer->response,
                                   [answer](const Outcome& outcome) { answer->outcome = outcome; });
    Pump();
    return answer;
  }

  void Advance(Duration by) {
    clock_.Advance(by);
    core_->OnTime();
    Pump();
  }
  // Answers a pending preparation of a graph, if there is one.
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
  // Unanswered runs of all executors.
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
  void AnswerRun(supervisor::RunReply reply) {
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
    const Status status = core_->job_reader().GetJob(*tenant_, id, &job);
    EXPECT_TRUE(status.ok()) << status;
    return job;
  }
  std::string State(const std::string& id) { return StateName(Job(id).state()); }
  StoredJob Row(const std::string& id) { return state_->jobs().Find("ann", id).value_or(StoredJob()); }

  // Checks that the core's counts match the store.
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

  bool with_index_ = false;
  TenantRef tenant_;
  std::string graph_;
  std::deque<v1::SubmitRequest> requests_;
  std::deque<v1::RetryJobRequest> retries_;
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_JOB_FIXTURE_H_
