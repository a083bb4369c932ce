// SPDX-License-Identifier: Apache-2.0
// The agent's rule by hand: its runs have stopped before the store may give their jobs away. Its races are the
// simulation's (tests/sim/cluster_world.h).
#include "server/cluster/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "server/cluster/testing/model_cluster_store.h"

namespace hpvm::server::cluster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

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
    attempts_ = recorded.ok() ? recorded->attempts : attempts_;
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

  uint32_t AttemptsOf(const std::string& id) {
    uint32_t attempts = 0;
    model_.Get("t", id, [&](const StatusOr<JobView>& view) { attempts = view->attempts; });
    return attempts;
  }
  void SetIntake(HostIntake intake) {
    model_.SetIntake("one", intake, [](const auto& set) { EXPECT_TRUE(set.ok()); });
  }

  // Forwards calls, or loses them; notes the words of hosts.
  class Link final : public AgentStore {
   public:
    explicit Link(AgentStore& store) : store_(store) {}
    bool answers = true;
    bool loses_answers = false;                              // Answers to renewals and ends are lost; the calls arrive.
    bool keeps_answers = false;                              // Answers to ends come late: the test gives them.
    bool keeps_renewals = false;                             // The same for answers to renewals.
    std::vector<std::function<void()>> kept;                 // These answers.
    std::vector<std::optional<std::set<std::string>>> told;  // The words of each renewal.
    std::set<std::string> joined_with;                       // The words of the last Join.
    void Join(Worker worker, Done<Lease> done) override {
      joined_with = worker.has;
      answers ? store_.Join(worker, done) : (void)0;
    }
    void Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) override {
      answers ? store_.Leave(worker, incarnation, done) : (void)0;
    }
    void Renew(RenewRequest request, Done<Renewal> done) override {
      told.push_back(request.has);
      const auto keep = [this, done](const StatusOr<Renewal>& renewal) {
        kept.push_back([done, renewal] { done(renewal); });
      };
      answers ? store_.Renew(request, keeps_renewals ? Done<Renewal>(keep) : Heard(done)) : (void)0;
    }
    void Claim(ClaimRequest request, Done<Claims> done) override { answers ? store_.Claim(request, done) : (void)0; }
    void Finish(FinishRequest request, Done<JobView> done) override {
      const auto keep = [this, done](const StatusOr<JobView>& view) { kept.push_back([done, view] { done(view); }); };
      answers ? store_.Finish(request, keeps_answers ? Done<JobView>(keep) : Heard(done)) : (void)0;
    }
    void Sweep(uint32_t most, Done<SweepResult> done) override { store_.Sweep(most, done); }

   private:
    template <typename T>
    Done<T> Heard(Done<T> done) {
      return loses_answers ? Done<T>([](const auto&) {}) : done;
    }

    AgentStore& store_;
  };

  ManualClock clock_;
  ModelClusterStore model_{{}, clock_};
  Link store_{model_};
  std::vector<std::string> started_, stopped_, recorded_;
  std::vector<StopReason> reasons_;
  HeldJob running_;
  uint32_t attempts_ = 0;  // The attempts of the job whose end was recorded last.
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
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
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
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kLost));
  EXPECT_THAT(recorded_, IsEmpty());
  EndRun(JobState::kFailed);
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
  EXPECT_EQ(agent_.held(), 0u);
  store_.answers = true;
  RunFor(std::chrono::seconds(4));  // It joins again, which gives the job back, and claims it.
  EXPECT_THAT(started_, ElementsAre("a", "a"));
  EXPECT_EQ(running_.fence, 2u);
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
}

// A run that ends by itself after its lease is reported; the store refuses it, as another host has the job.
TEST_F(AgentTest, LateEndsAreRefused) {
  Submit("a", 2);
  RunFor(std::chrono::milliseconds(100));
  RunFor(std::chrono::seconds(12), false);
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kLost));
  model_.Sweep(10, [](const auto&) {});
  model_.Join(
      {.name = "two", .has = {}, .memory_bytes = 1, .process = "p2", .joins = 1, .replaces = ""},
      [&](const StatusOr<Lease>& lease) {
        model_.Claim({"two", lease->incarnation, 1, 1}, [](const auto& claims) { EXPECT_EQ(claims->jobs.size(), 1u); });
      });
  EndRun(JobState::kSucceeded);
  EXPECT_THAT(recorded_, IsEmpty());
  store_.answers = true;
  RunFor(std::chrono::seconds(5));
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
  EXPECT_EQ(StateOf("a"), JobState::kRunning);
  EXPECT_THAT(started_, ElementsAre("a"));
}

// A claim that the store does not know any more.
TEST_F(AgentTest, LostClaimsAreNotReported) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  model_.Finish({.worker = "one", .job = running_, .result = "its own", .record = ""}, [](const auto&) {});
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kLost));
  EndRun(JobState::kFailed);
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
  RunFor(std::chrono::seconds(5));
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
  EXPECT_EQ(StateOf("a"), JobState::kSucceeded);
}

// An end that could not be reported is repeated, and counts once.
TEST_F(AgentTest, RepeatsEnds) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  store_.answers = false;
  EndRun(JobState::kSucceeded);
  RunFor(std::chrono::seconds(3), false);
  EXPECT_EQ(StateOf("a"), JobState::kRunning);
  EXPECT_THAT(recorded_, IsEmpty());
  store_.answers = store_.loses_answers = true;
  RunFor(std::chrono::seconds(3));
  EXPECT_EQ(StateOf("a"), JobState::kSucceeded);
  EXPECT_THAT(recorded_, IsEmpty());
  store_.loses_answers = false;
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
  EXPECT_EQ(agent_.held(), 0u);
}

// Each copy of an end is answered, and the first answer counts.
TEST_F(AgentTest, LateAnswersToRepeatedEndsCountOnce) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  store_.keeps_answers = true;
  EndRun(JobState::kSucceeded);
  RunFor(std::chrono::seconds(5));
  ASSERT_THAT(store_.kept, SizeIs(Ge(2)));
  EXPECT_THAT(recorded_, IsEmpty());
  for (const auto& answer : store_.kept) {
    answer();
  }
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
}

// The lease is over, and no sweep has taken the job back yet.
TEST_F(AgentTest, EndsThatComeBeforeTheSweepCount) {
  Submit("a", 2);
  RunFor(std::chrono::milliseconds(100));
  RunFor(std::chrono::seconds(12), false);
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kLost));
  EndRun(JobState::kSucceeded);
  store_.answers = true;
  RunFor(std::chrono::milliseconds(10));
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
  EXPECT_EQ(StateOf("a"), JobState::kSucceeded);
}

// A host that was away for weeks does not report for ever.
TEST_F(AgentTest, EndsOfForgottenJobsAreOver) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  RunFor(std::chrono::seconds(8), false);
  EndRun(JobState::kSucceeded);
  for (int week = 0; week < 2; ++week) {
    clock_.Advance(std::chrono::hours(24 * 7));
    model_.Sweep(100, [](const auto&) {});
  }
  model_.Get("t", "a", [](const auto& view) { EXPECT_TRUE(absl::IsNotFound(view.status())); });
  store_.answers = true;
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
  EXPECT_EQ(agent_.held(), 0u);
  EXPECT_TRUE(agent_.is_joined());
}

// The store would refuse it each time, and the job would never end.
TEST_F(AgentTest, EndsWithoutARecordThatIsTooLarge) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  EndRun(JobState::kSucceeded, std::string(1024 * 1024, 'x'));
  RunFor(std::chrono::seconds(1));
  EXPECT_EQ(StateOf("a"), JobState::kSucceeded);
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
}

TEST_F(AgentTest, StopsWhatTheUserCancels) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  model_.Cancel("t", "a", [](const auto&) {});
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(stopped_, ElementsAre("a"));
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kCancelled));
  EndRun(JobState::kFailed);
  RunFor(std::chrono::seconds(1));
  EXPECT_EQ(StateOf("a"), JobState::kCancelled);
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
}

TEST_F(AgentTest, StopsWhatIsLate) {
  NewJob job;
  job.tenant = "t";
  job.id = "a";
  job.deadline = std::chrono::seconds(2);
  model_.Submit({job}, [](const auto&) {});
  RunFor(std::chrono::seconds(4));
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kExpired));
  EndRun(JobState::kCancelled);
  RunFor(std::chrono::seconds(1));
  EXPECT_EQ(StateOf("a"), JobState::kFailed);
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
}

// A run that takes long to stop is told once more when its end no longer counts.
TEST_F(AgentTest, StopsAgainWhatIsLost) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  model_.Cancel("t", "a", [](const auto&) {});
  RunFor(std::chrono::seconds(4));
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kCancelled));
  RunFor(std::chrono::seconds(10), false);
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kCancelled, StopReason::kLost));
  store_.answers = true;
  RunFor(std::chrono::seconds(3));
  EXPECT_FALSE(agent_.is_joined());  // Its run has not ended.
  EndRun(JobState::kCancelled);
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(recorded_, ElementsAre("a lost"));
  EXPECT_EQ(reasons_.size(), 2u);
}

// A drain that gives back spends no attempt, and ends the lease.
TEST_F(AgentTest, GivesBack) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  agent_.Drain(/*gives_back=*/true);
  EXPECT_THAT(stopped_, ElementsAre("a"));
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kGivenBack));
  EndRun(JobState::kFailed);
  RunFor(std::chrono::seconds(1));
  EXPECT_TRUE(agent_.has_left());
  EXPECT_EQ(StateOf("a"), JobState::kWaiting);
  EXPECT_EQ(AttemptsOf("a"), 0u);
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
}

// An operator drains the host, and opens it again; it keeps its lease.
TEST_F(AgentTest, GivesBackWhileTheStoreDrainsIt) {
  Submit("a");
  RunFor(std::chrono::milliseconds(100));
  SetIntake(HostIntake::kDraining);
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(reasons_, ElementsAre(StopReason::kGivenBack));
  EndRun(JobState::kWaiting);  // As a run that did not end by itself: the attempt does not count all the same.
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
  EXPECT_EQ(StateOf("a"), JobState::kWaiting);
  EXPECT_EQ(AttemptsOf("a"), 0u);
  EXPECT_TRUE(agent_.is_joined() && !agent_.has_left());
  EXPECT_THAT(started_, ElementsAre("a"));
  SetIntake(HostIntake::kOpen);
  RunFor(std::chrono::seconds(1));
  EXPECT_THAT(started_, ElementsAre("a", "a"));
  EndRun(JobState::kSucceeded, "record");
  RunFor(std::chrono::seconds(1));
  EXPECT_THAT(recorded_, ElementsAre("a ok", "a ok"));
  model_.Get("t", "a", [](const StatusOr<JobView>& view) { EXPECT_EQ(view->record, "record"); });
}

// A run that is lost with what ran it counts, or does not, as its end says.
TEST_F(AgentTest, LateNewsOfADrainChangesNothing) {
  RunFor(std::chrono::seconds(1));
  SetIntake(HostIntake::kDraining);
  store_.keeps_renewals = true;
  RunFor(std::chrono::seconds(4));
  ASSERT_THAT(store_.kept, SizeIs(Ge(1)));
  SetIntake(HostIntake::kOpen);
  store_.keeps_renewals = false;
  Submit("a");
  RunFor(std::chrono::seconds(5));
  ASSERT_THAT(started_, ElementsAre("a"));
  for (const auto& give : std::exchange(store_.kept, {})) {
    give();
  }
  EXPECT_THAT(stopped_, IsEmpty());
}

TEST_F(AgentTest, LostAttemptsCountAsTheirEndsSay) {
  Submit("a", 2);
  for (const bool is_lost : {false, true}) {
    RunFor(std::chrono::seconds(1));
    agent_.OnRunEnded(running_, {.state = JobState::kWaiting, .result = "", .record = "", .is_lost = is_lost});
    agent_.Tick();
    EXPECT_EQ(attempts_, is_lost ? 1u : 0u);
  }
  EXPECT_THAT(recorded_, ElementsAre("a ok", "a ok"));
}

// Words are sent until a renewal that carried them is answered.
TEST_F(AgentTest, TellsItsWords) {
  using Words = std::set<std::string>;
  RunFor(std::chrono::milliseconds(2'100));
  EXPECT_THAT(store_.told, Each(std::nullopt));
  store_.told.clear();
  agent_.SetWords({"new"});
  RunFor(std::chrono::milliseconds(100));  // At once.
  EXPECT_THAT(store_.told, ElementsAre(Optional(Words{"new"})));
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(store_.told, ElementsAre(Optional(Words{"new"}), std::nullopt, std::nullopt));
  store_.loses_answers = true;
  agent_.SetWords({"newer"});
  store_.told.clear();
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(store_.told, AllOf(SizeIs(Ge(2)), Each(Optional(Words{"newer"}))));
  store_.loses_answers = false;
  RunFor(std::chrono::seconds(3));
  store_.told.clear();
  RunFor(std::chrono::seconds(2));
  EXPECT_THAT(store_.told, Each(std::nullopt));
}

// A host that joins again has the words that it was given last.
TEST_F(AgentTest, JoinsWithItsNewestWords) {
  RunFor(std::chrono::milliseconds(100));
  EXPECT_THAT(store_.joined_with, IsEmpty());
  agent_.SetWords({"new"});
  RunFor(std::chrono::seconds(12), false);
  store_.answers = true;
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(store_.joined_with, ElementsAre("new"));
  store_.told.clear();
  RunFor(std::chrono::seconds(3));
  EXPECT_THAT(store_.told, Each(std::nullopt));
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

TEST_F(AgentTest, RunsGoOnWhilePaused) {
  Submit("a");
  Submit("b");
  RunFor(std::chrono::milliseconds(100));
  agent_.SetPaused(true);
  RunFor(std::chrono::seconds(15));
  EXPECT_THAT(stopped_, IsEmpty());
  EndRun(JobState::kSucceeded);
  RunFor(std::chrono::seconds(1));
  EXPECT_THAT(recorded_, ElementsAre("a ok"));
  EXPECT_THAT(started_, ElementsAre("a"));
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
