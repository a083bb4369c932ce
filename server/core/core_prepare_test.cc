// SPDX-License-Identifier: Apache-2.0
// Tests preparations that no caller waits for any more, and the limit of their time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "server/core/core.h"
#include "server/testing/fake_executor.h"
#include "server/testing/hand_job_store.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using testing::FakeExecutor;
using testing::FakeSpawner;
using testing::HandJobStore;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StoredState;

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() {
    clock_.Advance(std::chrono::hours(1));
    spawner_.settle = [this] { store_->Pump(); };
    store_ = std::make_unique<HandJobStore>(state_, clock_);
    CoreOptions options;
    options.clock = &clock_;
    options.rng = &rng_;
    options.spawner = &spawner_;
    options.jobs = store_.get();
    core_ = std::make_unique<Core>(std::move(options));
    EXPECT_TRUE(core_->Restore().ok());
    tenant_ = *core_->tenants().FindTenant("ann");
    const std::string document = "{\"hpvm\": 1}";
    request_.set_graph_sha256(ToHex(HashOf(document)));
    auto upload = *BlobUpload::Start("graph document", request_.graph_sha256(), document.size(), 1000, 0, "");
    EXPECT_TRUE(upload->Add(document).ok());
    EXPECT_TRUE(core_->graphs().InsertBlob(*tenant_, Graphs::BlobKind::kGraph, *upload->Finish()).ok());
  }
  ~PrepareTest() override {
    core_->Stop();
    store_.reset();
    core_.reset();
  }

  struct Call {
    uint64_t id = 0;
    v1::PrepareGraphResponse response;
    std::optional<Outcome> outcome;
    StatusCode code() const { return outcome.has_value() ? outcome->status.code() : StatusCode::kUnknown; }
  };
  Call& Prepare() {
    Call& call = calls_.emplace_back();
    call.id = core_->graphs().PrepareGraph(tenant_, request_, &call.response,
                                           [&call](const Outcome& outcome) { call.outcome = outcome; });
    return call;
  }

  static internal::Prepared Accepted() { return supervisor::testing::AcceptedGraph("", {}, {}); }
  static internal::Prepared Failed(const Status& status) { return supervisor::testing::FailedPrepare(status); }
  FakeExecutor& executor() { return spawner_.last(); }

  ManualClock clock_;
  SeededRng rng_{7};
  FakeSpawner spawner_;
  StoredState state_;
  std::unique_ptr<HandJobStore> store_;
  std::unique_ptr<Core> core_;
  TenantRef tenant_;
  v1::PrepareGraphRequest request_;
  std::deque<Call> calls_;
};

// A caller that cancels is answered at once; the executor is told when the last one does.
TEST_F(PrepareTest, EndsWithTheLastWait) {
  Call& first = Prepare();
  Call& second = Prepare();
  ASSERT_EQ(executor().prepares.size(), 1u);
  core_->graphs().CancelPrepare(first.id);
  EXPECT_EQ(first.code(), StatusCode::kCancelled);
  EXPECT_FALSE(second.outcome.has_value());
  EXPECT_THAT(executor().cancels, IsEmpty());
  core_->graphs().CancelPrepare(first.id);
  core_->graphs().CancelPrepare(second.id);
  EXPECT_EQ(second.code(), StatusCode::kCancelled);
  EXPECT_THAT(executor().cancels, ElementsAre(1));
  executor().AnswerPrepare(Failed(Cancelled("The prepare was cancelled.")));
  EXPECT_EQ(executor().prepares.size(), 1u);
  // Another call begins a new preparation.
  Call& third = Prepare();
  ASSERT_EQ(executor().prepares.size(), 2u);
  executor().AnswerPrepare(Accepted());
  EXPECT_EQ(third.code(), StatusCode::kOk);
}

// A caller that arrives between the cancellation and its answer gets the graph that it asked for, also when the answer
// came too late to be a cancelled one.
TEST_F(PrepareTest, LateComersArePreparedFor) {
  core_->graphs().CancelPrepare(Prepare().id);
  Call& late = Prepare();
  ASSERT_EQ(executor().prepares.size(), 1u);
  executor().AnswerPrepare(Failed(Cancelled("The prepare was cancelled.")));
  EXPECT_FALSE(late.outcome.has_value());
  ASSERT_EQ(executor().prepares.size(), 2u);
  executor().AnswerPrepare(Accepted());
  EXPECT_EQ(late.code(), StatusCode::kOk);
  EXPECT_FALSE(late.response.handle().empty());
}

// A run's deadline that passes while its graph is prepared again ends that preparation, too.
TEST_F(PrepareTest, DeadlinesOfRunsEndIt) {
  Call& call = Prepare();
  executor().AnswerPrepare(Accepted());
  ASSERT_EQ(call.code(), StatusCode::kOk);
  executor().Die(Unavailable("The executor process ended (signal 9)."));
  v1::RunRequest request;
  request.set_handle(call.response.handle());
  request.mutable_options()->set_deadline_ns(1'000'000'000);
  std::optional<RunOutcome> outcome;
  core_->runs().Run(tenant_, request, [&](RunOutcome ended) { outcome = std::move(ended); });
  ASSERT_EQ(spawner_.executors().size(), 2u);
  ASSERT_EQ(executor().prepares.size(), 1u);
  clock_.Advance(std::chrono::milliseconds(1001));
  core_->OnTime();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->outcome.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(executor().cancels, ElementsAre(1));
}

// The error of an exceeded preparation time says that the limit is this server's.
TEST_F(PrepareTest, TheLimitIsTheServers) {
  Call& call = Prepare();
  executor().AnswerPrepare(Failed(DeadlineExceeded("The deadline passed while the module was being compiled.")));
  EXPECT_EQ(call.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(call.outcome->status), HasSubstr("this server's limit (executor.prepare_ms_max)"));
  EXPECT_TRUE(call.outcome->detail.has_value() && call.outcome->detail->retryable());
  Call& again = Prepare();
  executor().AnswerPrepare(Failed(ResourceExhausted("Compiling takes more processor time than this server's limit.")));
  EXPECT_EQ(again.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(again.outcome->status), HasSubstr("more processor time"));
}

}  // namespace
}  // namespace hpvm::server
