// SPDX-License-Identifier: Apache-2.0
// Checks the baselines against the examples of the papers that describe them.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "scheduler/testing/families.h"
#include "scheduler/testing/follow.h"
#include "scheduler/testing/heft.h"
#include "scheduler/testing/peft.h"
#include "scheduler/testing/schedule_checker.h"

namespace hpvm::scheduler {
namespace {

PeerProblem Make(std::vector<double> times, std::vector<PeerProblem::Edge> edges) {
  PeerProblem problem;
  problem.processors = 3;
  problem.tasks = static_cast<uint32_t>(times.size() / 3);
  problem.times = std::move(times);
  problem.edges = std::move(edges);
  for (PeerProblem::Edge& edge : problem.edges) {
    --edge.from;
    --edge.to;
  }
  problem.latency.assign(9, 0);
  problem.per_unit.assign(9, 1);
  return problem;
}

// Figure 2 and table 1 of the HEFT paper.
PeerProblem HeftExample() {
  return Make({14, 16, 9,  13, 19, 18, 11, 13, 19, 13, 8,  17, 12, 13, 10,
               13, 16, 9,  7,  15, 11, 5,  11, 14, 18, 12, 20, 21, 7,  16},
              {{1, 2, 18}, {1, 3, 12}, {1, 4, 9}, {1, 5, 11}, {1, 6, 14}, {2, 8, 19}, {2, 9, 16}, {3, 7, 23},
               {4, 8, 27}, {4, 9, 23}, {5, 9, 13}, {6, 8, 15}, {7, 10, 17}, {8, 10, 11}, {9, 10, 13}});
}

// Ranks as in table 2, order and makespan as in figure 3.
TEST(PeersTest, HeftReproducesItsPaper) {
  const PeerProblem problem = HeftExample();
  const std::vector<double> want = {108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667};
  const std::vector<double> ranks = HeftRanks(problem);
  for (size_t task = 0; task < want.size(); ++task) {
    EXPECT_NEAR(ranks[task], want[task], 0.01) << task;
  }
  const PeerSchedule schedule = Heft(problem);
  EXPECT_EQ(schedule.order, (std::vector<uint32_t>{0, 2, 3, 1, 4, 5, 8, 6, 7, 9}));
  EXPECT_EQ(schedule.makespan, 80);
}

// Figure 1 of the PEFT paper: HEFT needs 133, PEFT 122.
TEST(PeersTest, PeftReproducesItsPaper) {
  const PeerProblem problem = Make(
      {22, 21, 36, 22, 18, 18, 32, 27, 43, 7,  10, 4, 29, 27, 35,
       26, 17, 24, 14, 25, 30, 29, 23, 36, 15, 21, 8, 13, 16, 33},
      {{1, 2, 17}, {1, 3, 31}, {1, 4, 29}, {1, 5, 13}, {1, 6, 7}, {2, 8, 3}, {2, 9, 30}, {3, 7, 16},
       {4, 8, 11}, {4, 9, 7}, {5, 9, 57}, {6, 8, 5}, {7, 10, 9}, {8, 10, 42}, {9, 10, 7}});
  EXPECT_EQ(Heft(problem).makespan, 133);
  EXPECT_EQ(Peft(problem).makespan, 122);
}

// On every family and machine, the peers' schedules and ours can run as stated, none is shorter than the bound, and
// ours is at most a tenth worse than the best peer's.
TEST(PeersTest, FamiliesAreScheduledAndCompared) {
  for (const Family family : kFamilies) {
    for (const Platform platform : kPlatforms) {
      SCOPED_TRACE(NameOf(family) + " on " + NameOf(platform));
      const std::unique_ptr<FamilyCase> c = MakeFamily(family, platform, 3);
      EXPECT_GT(c->flat.nodes.size(), 60u);
      const PlacementInput input = c->Input();
      const PeerProblem problem = PeerProblemOf(*c);
      uint32_t unplaced = 0;
      Duration best = Duration::max();
      for (const PeerSchedule& schedule : {Heft(problem), Peft(problem), Greedy(problem), DmdaRule(problem)}) {
        const StatusOr<Placement> placement = Follow(input, TasksOf(*c, schedule), true, &unplaced);
        ASSERT_TRUE(placement.ok()) << Message(placement.status());
        const StatusOr<Duration> makespan = CheckSchedule(input, *placement);
        ASSERT_TRUE(makespan.ok()) << Message(makespan.status());
        EXPECT_EQ(*makespan, placement->makespan);
        EXPECT_GE(*makespan, LowerBound(*c));
        best = std::min(best, *makespan);
      }
      for (const std::vector<double>& ranks : {HeftRanks(problem), std::vector<double>()}) {
        const StatusOr<Placement> placement = PlaceInOrder(*c, ranks);
        ASSERT_TRUE(placement.ok()) << Message(placement.status());
        best = std::min(best, CheckSchedule(input, *placement).value_or(Duration(0)));
      }
      const StatusOr<Placement> ours = Place(input, &unplaced);
      const StatusOr<Duration> makespan = CheckSchedule(input, *ours);
      ASSERT_TRUE(makespan.ok()) << Message(makespan.status());
      EXPECT_GE(*makespan, LowerBound(*c));
      EXPECT_LE(makespan->count(), best.count() * 11 / 10);
    }
  }
}

}  // namespace
}  // namespace hpvm::scheduler
