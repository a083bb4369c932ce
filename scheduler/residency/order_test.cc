// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "scheduler/testing/random_plan.h"

namespace hpvm::scheduler {
namespace {

using graph::FlatNodeId;
using graph::FlatValueId;
using ::testing::ElementsAre;

// A plan on one processor: a step for each task, and its related data.
struct Planned {
  explicit Planned(const FlatBuilder& b) {
    for (size_t node = 0; node < b.flat.nodes.size(); ++node) {
      tasks.push_back({.node = FlatNodeId(node), .device = 0, .box = {}});
      tasks.back().start = Duration(static_cast<int64_t>(node) * 1000);
      tasks.back().end = tasks.back().start + Duration(1000);
    }
    const std::vector<DeviceFacts> devices = {{.id = "cpu:0"}};
    const WholeBuffers accesses(b.flat);
    StatusOr<Residency> made =
        PlanResidency({.flat = b.flat, .devices = devices, .spaces = {}, .tasks = tasks, .accesses = accesses});
    EXPECT_TRUE(made.ok()) << made.status();
    plan = *std::move(made);
    EXPECT_EQ(plan.segments.size(), 1u);
    order = OrderSteps(plan, plan.segments[0], tasks);
  }
  std::vector<Task> tasks;
  Residency plan;
  StepOrder order;
};

// Steps of a chain need no order besides the list's.
TEST(OrderTest, ChainHasNoParallelism) {
  FlatBuilder b;
  FlatValueId value = b.Input(64);
  for (int i = 0; i < 10; ++i) {
    b.Node();
    b.In(value);
    value = b.Out(64);
  }
  b.Output(value);
  const Planned p(b);
  EXPECT_TRUE(p.order.successors.empty());
  EXPECT_TRUE(p.order.predecessors.empty());
  EXPECT_LT(p.order.parallelism, kParallelismMin);
}

// A writer waits for the readers since the last write, but not also for that write; readers of one value do not wait
// for each other.
TEST(OrderTest, WaitsForTheLastWriterAndReadersSince) {
  ConflictMap map;
  const auto access = [&](ByteRange range, bool writes, uint32_t step) {
    std::vector<uint32_t> earlier;
    map.Access(0, range, writes, step, earlier);
    std::sort(earlier.begin(), earlier.end());
    earlier.erase(std::unique(earlier.begin(), earlier.end()), earlier.end());
    return earlier;
  };
  EXPECT_THAT(access({0, 100}, true, 0), ElementsAre());
  EXPECT_THAT(access({0, 50}, false, 1), ElementsAre(0));
  EXPECT_THAT(access({50, 100}, false, 2), ElementsAre(0));
  EXPECT_THAT(access({40, 60}, true, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(access({0, 40}, true, 4), ElementsAre(0, 1));
  EXPECT_THAT(access({40, 60}, true, 5), ElementsAre(3));
  EXPECT_THAT(access({0, 100}, false, 6), ElementsAre(0, 4, 5));
  EXPECT_THAT(access({100, 200}, true, 7), ElementsAre());
}

// Random accesses: all conflicting steps are ordered, directly or transitively.
TEST(OrderTest, RandomConflictsAreOrdered) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SeededRng rng(seed);
    // Small ranges are sometimes read together, so that histories are merged.
    const uint64_t bytes = seed % 2 == 0 ? 40 : 1000;
    ConflictMap map;
    struct Access {
      ByteRange range;
      bool writes;
    };
    std::vector<Access> accesses;
    std::vector<std::vector<bool>> before;
    for (uint32_t step = 0; step < 300; ++step) {
      const uint64_t begin = rng.Below(8) == 0 ? 0 : rng.Below(bytes);
      const uint64_t end = begin == 0 ? bytes : begin + 1 + rng.Below(6);
      accesses.push_back({{begin, end}, rng.Below(2) == 0});
      std::vector<uint32_t> earlier;
      map.Access(0, accesses[step].range, accesses[step].writes, step, earlier);
      before.emplace_back(step);
      for (const uint32_t e : earlier) {
        ASSERT_LT(e, step);
        before[step][e] = true;
        for (uint32_t other = 0; other < e; ++other) {
          before[step][other] = before[step][other] || before[e][other];
        }
      }
      for (uint32_t e = 0; e < step; ++e) {
        const bool conflicts = (accesses[e].writes || accesses[step].writes) && accesses[e].range.begin < end &&
                               begin < accesses[e].range.end;
        ASSERT_TRUE(!conflicts || before[step][e]) << "seed " << seed << " steps " << e << " and " << step;
      }
    }
  }
}

// Independent chains: the parallelism is their number, and edges exist only within each.
TEST(OrderTest, ChainsSideBySide) {
  FlatBuilder b;
  std::vector<FlatValueId> values;
  for (int c = 0; c < 8; ++c) {
    values.push_back(b.Input(64));
  }
  for (int i = 0; i < 5; ++i) {
    for (FlatValueId& value : values) {
      b.Node();
      value = b.InOut(value);
    }
  }
  for (const FlatValueId value : values) {
    b.Output(value);
  }
  const Planned p(b);
  EXPECT_NEAR(p.order.parallelism, 8, 0.01);
  const size_t steps = p.plan.steps.size();
  ASSERT_EQ(steps, 48u);  // Each chain begins with a copy of its input.
  EXPECT_EQ(p.order.successors.size(), steps - 8);
  EXPECT_EQ(std::count(p.order.predecessors.begin(), p.order.predecessors.end(), 0u), 8);
}

}  // namespace
}  // namespace hpvm::scheduler
