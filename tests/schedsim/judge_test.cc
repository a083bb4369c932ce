// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "scheduler/review/plan_judge.h"
#include "tests/schedsim/judge_world.h"

namespace hpvm::schedsim {
namespace {

using scheduler::PlanJudge;

// Whatever the machine does, the plan that stays is as good as the best there is.
TEST(PlanJudgeTest, FindsTheBestPlanInHindsight) {
  for (const std::string& broken : RunJudgeWorlds(1, 2000)) {
    ADD_FAILURE() << broken;
  }
}

// The champion takes `champion_ns` and the challenger `challenger_ns`, until there is a verdict. After how many runs;
// 0: none.
int Compete(PlanJudge& judge, double champion_ns, double challenger_ns, PlanJudge::Step verdict) {
  for (int run = 1; run < 100; ++run) {
    const PlanJudge::Step step = judge.After({.ns = judge.is_trial() ? challenger_ns : champion_ns});
    if (step == PlanJudge::Step::kTry) {
      judge.Made(champion_ns);
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

// Runs in which a device tries its code out say nothing against a plan.
TEST(PlanJudgeTest, ExperimentsAreNotCompared) {
  PlanJudge judge(2);
  int experiments = 6;
  for (int run = 0; run < 100; ++run) {
    const bool is_trial = judge.is_trial();
    const bool is_settled = !is_trial || experiments-- <= 0;
    const PlanJudge::Step step = judge.After({.ns = !is_trial    ? 1e6
                                                    : is_settled ? 0.8e6
                                                                 : 1.8e6,
                                              .is_settled = is_settled});
    ASSERT_NE(step, PlanJudge::Step::kGoBack) << run;
    if (step == PlanJudge::Step::kTry) {
      ASSERT_TRUE(judge.Made(1e6));
    }
    if (step == PlanJudge::Step::kAdopt) {
      return;
    }
  }
  ADD_FAILURE() << "Never adopted.";
}

// A loser has another chance when the champion has become slower than it was.
TEST(PlanJudgeTest, ALoserIsTriedAgainWhenTheChampionGetsSlower) {
  PlanJudge judge(2);
  ASSERT_NE(Compete(judge, 1e6, 1.2e6, PlanJudge::Step::kGoBack), 0);
  const int runs = Compete(judge, 2e6, 1.2e6, PlanJudge::Step::kAdopt);
  EXPECT_GT(runs, 0);
  EXPECT_LT(runs, 64);
}

// A run without the time for it is the champion's, and the trial goes on afterwards.
TEST(PlanJudgeTest, ATrialYields) {
  PlanJudge judge(2);
  while (judge.After({.ns = 1e6}) != PlanJudge::Step::kTry) {
  }
  ASSERT_TRUE(judge.Made(0.5e6));
  EXPECT_TRUE(judge.Yield());
  EXPECT_FALSE(judge.Yield());
  EXPECT_TRUE(judge.has_challenger());
  judge.After({.ns = 1e6});
  EXPECT_TRUE(judge.is_trial());
}

}  // namespace
}  // namespace hpvm::schedsim
