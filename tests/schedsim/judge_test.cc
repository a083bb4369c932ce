// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "scheduler/review/plan_judge.h"
#include "tests/schedsim/judge_world.h"

namespace hpvm::schedsim {
namespace {

using scheduler::PlanJudge;

// The plan that stays is as good as the best available one, whatever the machine does.
TEST(PlanJudgeTest, FindsTheBestPlanInHindsight) {
  for (const std::string& broken : RunJudgeWorlds(1, 2000)) {
    ADD_FAILURE() << broken;
  }
}

// Runs with the given durations of champion and challenger until there is a verdict. Returns the number of runs; 0
// for none.
int Compete(PlanJudge& judge, double champion_ns, double challenger_ns, PlanJudge::Step verdict) {
  for (int run = 1; run < 100; ++run) {
    const PlanJudge::Step step = judge.After({.ns = judge.is_trial() ? challenger_ns : champion_ns});
    if (step == PlanJudge::Step::kTry) {
      judge.Made(champion_ns, true);
    } else if (step == PlanJudge::Step::kAdopt || step == PlanJudge::Step::kGoBack) {
      EXPECT_EQ(step, verdict);
      return run;
    }
  }
  return 0;
}

TEST(PlanJudgeTest, TheBetterOneStays) {
  for (const double ratio : {0.3, 0.7, 0.9, 0.96}) {
    PlanJudge judge(2);
    EXPECT_NE(Compete(judge, 1e6, ratio * 1e6, PlanJudge::Step::kAdopt), 0) << ratio;
    EXPECT_NEAR(judge.usual_ns(), ratio * 1e6, 1);
  }
  for (const double ratio : {0.995, 1.1, 1.3, 2.5}) {
    PlanJudge judge(2);
    EXPECT_NE(Compete(judge, 1e6, ratio * 1e6, PlanJudge::Step::kGoBack), 0) << ratio;
  }
}

// Runs in which a device tries code variants do not count against a plan.
TEST(PlanJudgeTest, ExperimentsAreNotCompared) {
  PlanJudge judge(2);
  int experiments = 6;
  for (int run = 0; run < 200; ++run) {
    const bool is_trial = judge.is_trial();
    const bool is_settled = !is_trial || experiments-- <= 0;
    const PlanJudge::Step step = judge.After({.ns = !is_trial    ? 1e6
                                                    : is_settled ? 0.8e6
                                                                 : 1.8e6,
                                              .is_settled = is_settled});
    ASSERT_NE(step, PlanJudge::Step::kGoBack) << run;
    if (step == PlanJudge::Step::kTry) {
      ASSERT_TRUE(judge.Made(1e6, true));
    }
    if (step == PlanJudge::Step::kAdopt) {
      return;
    }
  }
  ADD_FAILURE() << "Never adopted.";
}

// A loser gets another chance when the champion has become slower.
TEST(PlanJudgeTest, ALoserIsTriedAgainWhenTheChampionGetsSlower) {
  PlanJudge judge(2);
  ASSERT_NE(Compete(judge, 1e6, 1.2e6, PlanJudge::Step::kGoBack), 0);
  const int runs = Compete(judge, 2e6, 1.2e6, PlanJudge::Step::kAdopt);
  EXPECT_GT(runs, 0);
  EXPECT_LT(runs, 64);
}

// A plan that takes several times its planned time is dropped at once, not when its devices have settled.
TEST(PlanJudgeTest, AWrongPlanGoesAtOnce) {
  PlanJudge judge(4);
  const PlanJudge::Run wrong{.ns = 5e6, .is_settled = false, .promises = true, .is_far_off = true};
  ASSERT_EQ(judge.After(wrong), PlanJudge::Step::kTry);
  EXPECT_EQ(judge.source(), 0u);
  ASSERT_TRUE(judge.Made(1e6, true));
  ASSERT_TRUE(judge.is_trial());
  EXPECT_EQ(judge.After({.ns = 1.2e6, .is_settled = false}), PlanJudge::Step::kAdopt);
  // A plan that hardly promises more is not tried, nor is one without a promise, and the number of trials is limited.
  PlanJudge other(4);
  EXPECT_EQ(other.After({.ns = 5e6, .is_settled = false, .is_far_off = true}), PlanJudge::Step::kKeep);
  for (int hurry = 0; hurry < 3; ++hurry) {
    ASSERT_EQ(other.After(wrong), PlanJudge::Step::kTry);
    EXPECT_FALSE(other.Made(4.9e6, true));
  }
  EXPECT_EQ(other.After(wrong), PlanJudge::Step::kKeep);
}

// When a plan over several devices has settled, and when another one has won, more is known: a new plan is tried once
// if it is predicted to be better.
TEST(PlanJudgeTest, PlansAnewByWhatItHasLearnt) {
  PlanJudge judge(4);
  EXPECT_EQ(judge.After({.ns = 1e6}), PlanJudge::Step::kKeep);
  ASSERT_EQ(judge.After({.ns = 1e6}), PlanJudge::Step::kTry);
  EXPECT_EQ(judge.source(), 0u);
  EXPECT_FALSE(judge.Made(0.97e6, true));
  ASSERT_EQ(judge.After({.ns = 1e6}), PlanJudge::Step::kTry);
  EXPECT_EQ(judge.source(), 1u);
  ASSERT_TRUE(judge.Made(0.5e6, true));
  while (judge.has_challenger()) {
    judge.After({.ns = judge.is_trial() ? 0.5e6 : 1e6});
  }
  ASSERT_EQ(judge.After({.ns = 0.5e6, .is_doubtful = false}), PlanJudge::Step::kTry);
  EXPECT_EQ(judge.source(), 0u);
  EXPECT_TRUE(judge.Made(0.3e6, true));
}

// When an earlier plan is kept, a new placement is tried after a number of runs, without a predicted gain, because
// shares may have become wrong. A plan that is predicted to be hardly better is not tried. No plan is made when there
// was never another one.
TEST(PlanJudgeTest, PlansAnewAfterManyRuns) {
  for (const bool has_former : {false, true}) {
    PlanJudge judge(4);
    int asked = 0;
    for (int run = 0; run < 1000; ++run) {
      const double ns = judge.is_trial() ? 2e6 : 1e6;
      if (judge.After({.ns = ns, .is_doubtful = has_former && run < 2}) != PlanJudge::Step::kTry) {
        continue;
      }
      if (judge.source() != 0) {
        judge.Refuse();
      } else {
        ++asked;
        EXPECT_EQ(judge.Made(asked == 1 ? 0.5e6 : 0.97e6, false), asked == 1);
      }
    }
    EXPECT_GE(asked, has_former ? 3 : 0);
    EXPECT_LE(asked, has_former ? 6 : 0);
  }
}

// A plan of one device that would be a little slower is tried, because costs are estimates; a plan that would be
// twice as slow is tried only if that is a guess.
TEST(PlanJudgeTest, WhatIsKnownToBeSlowIsNotTried) {
  for (const bool is_guess : {true, false}) {
    PlanJudge judge(2);
    while (judge.After({.ns = 1e6}) != PlanJudge::Step::kTry) {
    }
    ASSERT_EQ(judge.source(), 1u);
    EXPECT_EQ(judge.Made(2e6, is_guess), is_guess);
    EXPECT_EQ(judge.has_challenger(), is_guess);
  }
  PlanJudge judge(2);
  while (judge.After({.ns = 1e6}) != PlanJudge::Step::kTry) {
  }
  EXPECT_TRUE(judge.Made(1.2e6, false));
}

// A run without time for a trial uses the champion, and the trial continues afterwards.
TEST(PlanJudgeTest, ATrialYields) {
  PlanJudge judge(2);
  while (judge.After({.ns = 1e6}) != PlanJudge::Step::kTry) {
  }
  ASSERT_TRUE(judge.Made(0.5e6, true));
  EXPECT_TRUE(judge.Yield());
  EXPECT_FALSE(judge.Yield());
  EXPECT_TRUE(judge.has_challenger());
  judge.After({.ns = 1e6});
  EXPECT_TRUE(judge.is_trial());
}

}  // namespace
}  // namespace hpvm::schedsim
