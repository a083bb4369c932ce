// SPDX-License-Identifier: Apache-2.0
// The agent's rule by hand: its runs have stopped before the store may give their jobs away. Its races are the
// simulation's (tests/sim/cluster_world.h).
#include "server/cluster/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/cluster/testing/model_cluster_store.h"

namespace hpvm::server::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AgentTest : public ::testing::Test, protected AgentRuns {
 protected:
  void Start(const Claim& claim) override {
    started_.push_back(claim.id);
    running_ = {claim.tenant, claim.id, claim.fence};
  }
  void Stop(const HeldJob& job, StopReason why) override {
    stopped_.push_back(job.id);
    reasons_.push_back(why);
  }
  void OnRecorded(const HeldJob& job, const StatusOr<JobView>& recorded) override {
    recorded_.push_back(job.id + (recorded.ok() ? " ok" : " lost"));
  }
  void EndRun(JobState state, std::string record = "") {
    agent_.OnRunEnded(running_, {.state = state, .result = "result", .record = std::move(record)});
  }

  // Calls the agent when it wants to be called, until `end`.
  void RunFor(Duration length, bool store_answers = true) {
    const Time end = clock_.Now() + length;
    while (true) {
      const Time next = std::max(agent_.Tick(), clock_.Now() + std::chrono::milliseconds(1));
      if (next > end) {
        break;
      }
      clock_.Advance(next - clock_.Now());
      store_.answers = store_answers;
    }
    clock_.Advance(end - clock_.Now());
    agent_.Tick();
  }
  void Submit(const std::string& id, uint32_t attempts_max = 1) {
    model_.Submit({{.tenant = "t", .id = id, .attempts_max = attempts_max}}, [](const auto&) {});
  }
  JobState StateOf(const std::string& id) {
    JobState state = JobState::kWaiting;
    model_.Get("t", id, [&](const StatusOr<JobView>& view) { state = view->state; });
    return state;
  }

  // Forwards calls, or loses them.
  class Link final : public AgentStore {
   public:
    explicit Link(AgentStore& store) : store_(store) {}
    bool answers = true;
    void Join(Worker worker, Done<Lease> done) override { answers ? store_.Join(worker, done) : (void)0; }
    void Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) override {
      answers ? store_.Leave(worker, incarnation, done) : (void)0;
    }
    void Renew(RenewRequest request, Done<Renewal> done) override { answers ? store_.Renew(request, done) : (void)0; }
    void Claim(ClaimRequest request, Done<Claims> done) override { answers ? store_.Claim(request, done) : (void)0; }
    void Finish(FinishRequest request, Done<JobView> done) override {
      answers ? store_.Finish(request, done) : (void)0;
    }
    void Sweep(uint32_t most, Done<SweepResult> done) override { store_.Sweep(most, done); }

   private:
    AgentStore& store_;
  };

  ManualClock clock_;
  ModelClusterStore model_{{}, clock_};
  Link store_{model_};
  std::vector<std::string> started_, stopped_, recorded_;
  std::vector<StopReason> reasons_;
  HeldJob running_;
  Agent agent_{{.worker = {.name = "one", .memory_bytes = 1, .process = "p1"}, .runs_max = 1}, store_, *this, clock_};
};

TEST_F(AgentTest, RunsWhatItClaims) {
  Submit("a");
  Submit("b");
  RunFor(std::chrono::seconds(1));
  EXPECT_THAT(started_, ElementsAre("a"));
  EndRun(JobState::kSucceeded);
  RunFor(std::chrono::seconds(1));
  EXPECT_EQ(StateOf("a"), JobState::kSucceeded);
  EXPECT_THAT(started_, ElementsAre("a", "b"));
}

// A host that is cut off stops its run after 7 of the lease's 10 seconds, and reports no end.
TEST_F(AgentTest, StopsBeforeItsLeaseEnds) {
  Submit("a", 2);
  RunFor(std::chrono::milliseconds(100));
  ASSERT_THAT(started_, ElementsAre("a"));
  store_.answers = false;
  RunFor(std::chrono::milliseconds(6'800), false);
  EXPECT_THAT(stopped_, IsEmpty());
  RunFor(std::chrono::milliseconds(200), false);
  EXPECT_THAT(stopped_, ElementsAre("a"));
  EndRun(JobState::kFailed);
  EXPECT_EQ(agent_.held(), 0u);
  store_.answers = true;
  RunFor(std::chrono::seconds(4));  // It joins again, which gives the job back, and claims it.
  EXPECT_THAT(started_, ElementsAre("a", "a"));
  EXPECT_EQ(running_.fence, 2u);
}

// An end that could not be reported is repeated, and counts once.
TEST_F(AgentTest, RepeatsEnds) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  store_.answers = false;
  EndRun(JobState::kSucceeded);
  RunFor(std::chrono::seconds(3), false);
  EXPECT_EQ(StateOf("a"), JobState::kRunning);
  store_.answers = true;
  RunFor(std::chrono::seconds(3));
  EXPECT_EQ(StateOf("a"), JobState::kSucceeded);
  EXPECT_EQ(agent_.held(), 0u);
}

TEST_F(AgentTest, StopsWhatTheUserCancels) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  model_.Cancel("t", "a", [](const auto&) {});
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(stopped_, ElementsAre("a"));
  EndRun(JobState::kFailed);
  RunFor(std::chrono::seconds(1));
  EXPECT_EQ(StateOf("a"), JobState::kCancelled);
}

// A drain that gives back spends no attempt, and ends the lease.
TEST_F(AgentTest, GivesBack) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  agent_.Drain(/*gives_back=*/true);
  EXPECT_THAT(stopped_, ElementsAre("a"));
  EndRun(JobState::kFailed);
  RunFor(std::chrono::seconds(1));
  EXPECT_TRUE(agent_.has_left());
  EXPECT_EQ(StateOf("a"), JobState::kWaiting);
}

// Each run is told once that its end is recorded, or that its claim was lost.
TEST_F(AgentTest, RunsLearnThatTheirEndIsRecorded) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  EndRun(JobState::kSucceeded, "record");
  EXPECT_THAT(recorded_, IsEmpty());
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
}

TEST_F(AgentTest, RunsLearnThatTheirLeaseIsLost) {
  Submit("a", 2);
  RunFor(std::chrono::milliseconds(100));
  store_.answers = false;
  RunFor(std::chrono::seconds(7), false);
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kLost));
  EndRun(JobState::kFailed);
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
  RunFor(std::chrono::seconds(7), false);
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
}

// A run that ends well while it is being stopped is reported, and refused when another host has the claim.
TEST_F(AgentTest, EndsThatComeTooLateAreRefused) {
  Submit("a", 2);
  RunFor(std::chrono::milliseconds(100));
  store_.answers = false;
  EndRun(JobState::kSucceeded);
  RunFor(std::chrono::seconds(12), false);
  model_.Sweep(10, [](const auto&) {});
  store_.answers = true;
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
}

// A stop is told again when the claim turns out to be lost.
TEST_F(AgentTest, StopsAgainWhatIsLost) {
  Submit("a", 2);
  RunFor(std::chrono::milliseconds(100));
  model_.Cancel("t", "a", [](const auto&) {});
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kCancelled));
  store_.answers = false;
  RunFor(std::chrono::seconds(9), false);
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kCancelled, StopReason::kLost));
}

// A host that is to drain gives its jobs back, stays, and claims again when it is open.
TEST_F(AgentTest, DrainsWithoutLeaving) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  model_.SetIntake("one", HostIntake::kDraining, [](const auto&) {});
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kGivenBack));
  EndRun(JobState::kWaiting);
  RunFor(std::chrono::seconds(2));
  EXPECT_EQ(StateOf("a"), JobState::kWaiting);
  EXPECT_TRUE(agent_.is_joined());
  EXPECT_THAT(started_, ElementsAre("a"));
  model_.SetIntake("one", HostIntake::kOpen, [](const auto&) {});
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(started_, ElementsAre("a", "a"));
  EXPECT_EQ(running_.fence, 2u);
}

TEST_F(AgentTest, ClaimsNothingWhilePaused) {
  agent_.SetPaused(true);
  Submit("a");
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(started_, IsEmpty());
  EXPECT_TRUE(agent_.is_joined());
  agent_.SetPaused(false);
  RunFor(std::chrono::seconds(1));
  EXPECT_THAT(started_, ElementsAre("a"));
}

// New words are sent until a renewal that carried them is answered.
TEST_F(AgentTest, SendsNewWords) {
  model_.Submit({{.tenant = "t", .id = "a", .needs = {.any_of = {{"kind:gpu"}}}}}, [](const auto&) {});
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(started_, IsEmpty());
  store_.answers = false;
  agent_.SetWords({"kind:gpu"});
  RunFor(std::chrono::seconds(1), false);
  store_.answers = true;
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(started_, ElementsAre("a"));
}

}  // namespace
}  // namespace hpvm::server::cluster
