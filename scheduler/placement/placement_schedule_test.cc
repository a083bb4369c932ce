// SPDX-License-Identifier: Apache-2.0
// Checks schedules of random graphs on random machines with a checker that shares no code with the planner.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "scheduler/placement/placement.h"
#include "scheduler/testing/schedule_checker.h"

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatValueId;

// A time for each leaf and device, and one link speed.
class TableCosts final : public CostModel {
 public:
  explicit TableCosts(uint64_t seed) : seed_(seed) {}
  Cost Run(const Work& work, DeviceIndex index, const DeviceFacts&) const override {
    SeededRng rng(seed_ * 1'000'003 + work.leaf.index * 101 + index);
    return {.time = Duration(1 + rng.Below(100'000)), .is_estimate = false};
  }
  Duration Transfer(uint64_t bytes, SpaceIndex, SpaceIndex to) const override {
    return Duration(1'000 + bytes / (to == kHostSpace ? 3 : 2));
  }

 private:
  const uint64_t seed_;
};

struct RandomCase {
  explicit RandomCase(uint64_t seed) : rng(seed), costs(seed) {
    const std::vector<DeviceFacts> all = {
        {.id = "cpu:0", .launch_ns = 500, .lanes = static_cast<uint32_t>(1 + rng.Below(4)), .silicon = 0},
        {.id = "gpu:0", .space = 1, .silicon = 1, .has_copy_lanes = rng.Below(2) == 0},
        {.id = "gpu:1", .space = 2, .silicon = 2, .has_copy_lanes = true},
        {.id = "emulated:0", .space = 3, .silicon = 0}};
    devices.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(1 + rng.Below(4)));
    const uint64_t nodes = 1 + rng.Below(60);
    for (uint64_t i = 0; i < 1 + rng.Below(3); ++i) {
      Value(FlatNodeId());
    }
    for (uint32_t node = 0; node < nodes; ++node) {
      AddNode(node);
    }
    for (uint64_t i = 0; i < rng.Below(4); ++i) {
      flat.outputs.push_back(FlatValueId(static_cast<uint32_t>(rng.Below(flat.values.size()))));
    }
  }

  FlatValueId Value(FlatNodeId producer) {
    flat.values.push_back({.bytes = rng.Below(5) * 20'000, .shape = {}, .producer = producer});
    return FlatValueId(flat.values.size() - 1);
  }

  void AddNode(uint32_t index) {
    graph::FlatNode node;
    node.leaf = graph::NodeId(index);
    node.first_port = static_cast<uint32_t>(flat.ports.size());
    node.extent = {1 + rng.Below(8), 1, 1};
    flat.nodes.push_back(node);
    const uint64_t known = flat.values.size();
    for (uint64_t p = 0; p < 1 + rng.Below(3); ++p) {
      const FlatValueId in(static_cast<uint32_t>(known - 1 - rng.Below(std::min<uint64_t>(known, 8))));
      const uint64_t kind = rng.Below(3);
      graph::FlatPort port{.access = static_cast<graph::Access>(kind), .in = kind == 1 ? FlatValueId() : in, .out = {}};
      if (kind != 0) {
        port.out = Value(FlatNodeId(index));
        flat.values.back().bytes = kind == 2 ? flat.values[in.index].bytes : flat.values.back().bytes;
      }
      flat.ports.push_back(port);
    }
    std::vector<Candidate> list;
    for (DeviceIndex d = 0; d < devices.size(); ++d) {
      if (rng.Below(4) != 0 || (d + 1 == devices.size() && list.empty())) {
        list.push_back({.device = d});
      }
    }
    candidates.push_back(list);
  }

  SeededRng rng;
  TableCosts costs;
  FlatGraph flat;
  std::vector<DeviceFacts> devices;
  std::vector<std::vector<Candidate>> candidates;
};

// Every task is scheduled exactly once, in order, without overlap, and the makespan is what the planner reports.
TEST(PlacementScheduleTest, RandomGraphsCanRunAsPlanned) {
  for (uint64_t seed = 1; seed <= 1'500; ++seed) {
    SCOPED_TRACE(seed);
    const RandomCase c(seed);
    uint32_t unplaced = 0;
    const PlacementInput input{.flat = c.flat,
                               .devices = c.devices,
                               .candidates = c.candidates,
                               .costs = c.costs,
                               .effort = seed % 3 * 500,
                               .wants_transfers = true};
    const StatusOr<Placement> placement = Place(input, &unplaced);
    ASSERT_TRUE(placement.ok());
    const StatusOr<Duration> makespan = CheckSchedule(input, *placement);
    ASSERT_TRUE(makespan.ok()) << Message(makespan.status());
    ASSERT_EQ(*makespan, placement->makespan);
    const StatusOr<Placement> again = Place(input, &unplaced);
    ASSERT_EQ(again->makespan, placement->makespan);
    for (size_t t = 0; t < placement->tasks.size(); ++t) {
      ASSERT_EQ(again->tasks[t].node, placement->tasks[t].node);
      ASSERT_EQ(again->tasks[t].device, placement->tasks[t].device);
    }
  }
}

// The checker detects faults: a task that is too early, on another device, duplicated, or out of order; a transfer that
// is missing or too short; two launches at once.
TEST(PlacementScheduleTest, TheCheckerSeesFaults) {
  const std::vector<DeviceFacts> devices = {{.id = "cpu:0", .silicon = 0},
                                            {.id = "gpu:0", .space = 1, .silicon = 1, .has_copy_lanes = true}};
  FlatGraph flat;
  flat.values.push_back({.bytes = 4'000, .shape = {}, .producer = {}});
  for (uint32_t i = 0; i < 3; ++i) {
    graph::FlatNode node;
    node.leaf = graph::NodeId(i);
    node.first_port = static_cast<uint32_t>(flat.ports.size());
    flat.nodes.push_back(node);
    flat.values.push_back({.bytes = 4'000, .shape = {}, .producer = FlatNodeId(i)});
    flat.ports.push_back({.access = graph::Access::kIn, .in = FlatValueId(i), .out = {}});
    flat.ports.push_back({.access = graph::Access::kOut, .in = {}, .out = FlatValueId(i + 1)});
  }
  flat.outputs = {FlatValueId(3u)};
  const std::vector<std::vector<Candidate>> candidates = {{{.device = 0}}, {{.device = 1}}, {{.device = 1}}};
  const TableCosts costs(1);
  const PlacementInput input{
      .flat = flat, .devices = devices, .candidates = candidates, .costs = costs, .wants_transfers = true};
  uint32_t unplaced = 0;
  const Placement good = *Place(input, &unplaced);
  ASSERT_EQ(good.transfers.size(), 2u);
  EXPECT_TRUE(CheckSchedule(input, good).ok());
  const auto is_seen = [&](const auto& spoil) {
    Placement bad = good;
    spoil(bad);
    return !CheckSchedule(input, bad).ok();
  };
  const auto move = [](Task& task, int64_t ns) {
    task.start += Duration(ns);
    task.end += Duration(ns);
  };
  EXPECT_TRUE(is_seen([&](Placement& p) { move(p.tasks[1], -1); }));
  EXPECT_TRUE(is_seen([&](Placement& p) { move(p.tasks[1], 1); }));
  EXPECT_TRUE(is_seen([](Placement& p) { p.tasks[0].end -= Duration(1); }));
  EXPECT_TRUE(is_seen([](Placement& p) { p.tasks[2].device = 0; }));
  EXPECT_TRUE(is_seen([](Placement& p) { p.tasks.push_back(p.tasks[0]); }));
  EXPECT_TRUE(is_seen([](Placement& p) { p.tasks.pop_back(); }));
  EXPECT_TRUE(is_seen([](Placement& p) { std::swap(p.tasks[0], p.tasks[1]); }));
  EXPECT_TRUE(is_seen([](Placement& p) { p.transfers.erase(p.transfers.begin()); }));
  EXPECT_TRUE(is_seen([](Placement& p) { p.transfers.pop_back(); }));
  EXPECT_TRUE(is_seen([](Placement& p) { p.transfers[0].end -= Duration(1); }));
  EXPECT_TRUE(is_seen([](Placement& p) { p.transfers[0].start -= Duration(1); }));
}

}  // namespace
}  // namespace hpvm::scheduler
