// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatValueId;

// Every launch costs the same on every device; transfers cost 10 µs and 10 GB/s.
class ConstantCosts final : public CostModel {
 public:
  Cost Run(const Work&, DeviceIndex, const DeviceFacts&) const override {
    return {.time = std::chrono::microseconds(10), .is_estimate = false};
  }
  Duration Transfer(uint64_t bytes, SpaceIndex, SpaceIndex) const override {
    return std::chrono::microseconds(10) + Duration(static_cast<int64_t>(bytes / 10));
  }
};

// A chain: node i is leaf i, reads value i of `bytes` bytes and makes value i + 1.
FlatGraph Chain(uint32_t nodes, uint64_t bytes) {
  FlatGraph flat;
  flat.values.push_back({.bytes = bytes, .shape = {}, .producer = {}});
  for (uint32_t i = 0; i < nodes; ++i) {
    graph::FlatNode node;
    node.leaf = graph::NodeId(i);
    node.first_port = i;
    flat.nodes.push_back(node);
    flat.values.push_back({.bytes = bytes, .shape = {}, .producer = FlatNodeId(i)});
    flat.ports.push_back({.access = graph::Access::kInOut, .in = FlatValueId(i), .out = FlatValueId(i + 1)});
  }
  return flat;
}

const std::vector<DeviceFacts> kDevices = {{.id = "interp:0", .tier = Tier::kReference},
                                           {.id = "cpu:0"},
                                           {.id = "null:0", .tier = Tier::kNull},
                                           {.id = "gpu:0", .space = 1},
                                           {.id = "opencl:0", .tier = Tier::kEmulated}};

std::vector<DeviceIndex> DevicesOf(const FlatGraph& flat, const std::vector<std::vector<Candidate>>& candidates,
                                   uint64_t* fallback = nullptr) {
  const ConstantCosts costs;
  uint32_t unplaced = 0;
  const StatusOr<Placement> placement =
      Place({.flat = flat, .devices = kDevices, .candidates = candidates, .costs = costs}, &unplaced);
  EXPECT_TRUE(placement.ok());
  std::vector<DeviceIndex> out;
  for (const Task& task : placement->tasks) {
    out.push_back(task.device);
  }
  if (fallback != nullptr) {
    *fallback = placement->fallback_nodes;
  }
  return out;
}

// Tiers take precedence over everything else, and nodes that fell back are counted.
TEST(PlacementTest, PrefersRealDevices) {
  uint64_t fallback = 0;
  EXPECT_EQ(DevicesOf(Chain(4, 4),
                      {{{.device = 2}, {.device = 0, .hint = 0}, {.device = 4, .hint = 0}, {.device = 1}},
                       {{.device = 2}, {.device = 0, .hint = 0}, {.device = 4}},
                       {{.device = 2}, {.device = 0}},
                       {{.device = 2}}},
                      &fallback),
            (std::vector<DeviceIndex>{1, 4, 0, 2}));
  EXPECT_EQ(fallback, 3u);
}

// Among real devices a hint wins; without a hint the location of the data does; equal costs select the first candidate.
TEST(PlacementTest, HintsThenDataThenOrder) {
  EXPECT_EQ(DevicesOf(Chain(3, 1 << 20), {{{.device = 1}, {.device = 3, .hint = 0}},
                                          {{.device = 1}, {.device = 3}},
                                          {{.device = 1, .hint = 1}, {.device = 3}}}),
            (std::vector<DeviceIndex>{3, 3, 1}));
  EXPECT_EQ(DevicesOf(Chain(1, 4), {{{.device = 1, .variant = 0}, {.device = 1, .variant = 1}}}),
            (std::vector<DeviceIndex>{1}));
}

// A node that no device can run is reported by its index.
TEST(PlacementTest, NamesTheNodeWithoutCandidates) {
  const FlatGraph flat = Chain(2, 4);
  const std::vector<std::vector<Candidate>> candidates = {{{.device = 1}}, {}};
  const ConstantCosts costs;
  uint32_t unplaced = 0;
  const StatusOr<Placement> placement =
      Place({.flat = flat, .devices = kDevices, .candidates = candidates, .costs = costs}, &unplaced);
  EXPECT_EQ(placement.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(unplaced, 1u);
}

// Candidates that cannot run a launch's sizes are skipped, hinted or not; when none is left, the node is reported.
TEST(PlacementTest, PassesOverWhatCannotRunTheLaunch) {
  const FlatGraph flat = Chain(1, 4);
  const std::vector<std::vector<Candidate>> candidates = {{{.device = 3, .hint = 0}, {.device = 1}}};
  const ConstantCosts costs;
  uint32_t unplaced = 1;
  const auto place = [&](std::vector<DeviceIndex> refused) {
    return Place({.flat = flat,
                  .devices = kDevices,
                  .candidates = candidates,
                  .costs = costs,
                  .can_run =
                      [refused](uint32_t, const Candidate& candidate) {
                        return std::find(refused.begin(), refused.end(), candidate.device) == refused.end();
                      }},
                 &unplaced);
  };
  EXPECT_EQ(place({})->tasks[0].choice, 0u);
  EXPECT_EQ(place({3})->tasks[0].choice, 1u);
  EXPECT_EQ(place({1, 3}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(unplaced, 0u);
}

// With estimates, a small launch stays with the host and a large one goes to the GPU; a chain stays where it is.
TEST(PlacementTest, StaticCostsWeighWorkAgainstTransfers) {
  const std::vector<DeviceFacts> devices = {
      {.id = "cpu:0", .compute_units = 16},
      {.id = "gpu:0", .space = 1, .compute_units = 100, .is_gpu = true, .bytes_per_second = 2e12}};
  struct Case {
    const char* name;
    uint32_t nodes;
    uint64_t instances, bytes;
    std::vector<DeviceIndex> want;
  };
  const Case cases[] = {
      {"one element", 1, 1, 4, {0}},
      {"a page", 2, 1'000, 4'000, {0, 0}},
      {"many instances", 2, 100'000'000, 400'000'000, {1, 1}},
      {"few instances over much data", 1, 16, 1'000'000'000, {0}},
      {"many instances on little data", 1, 10'000'000, 1'000, {1}},
      {"nothing to do", 1, 0, 0, {0}},
  };
  const StaticCosts costs;
  for (const Case& c : cases) {
    FlatGraph flat = Chain(c.nodes, c.bytes);
    for (graph::FlatNode& node : flat.nodes) {
      node.extent = {c.instances, 1, 1};
    }
    const std::vector<std::vector<Candidate>> candidates(c.nodes, {{.device = 1}, {.device = 0}});
    uint32_t unplaced = 0;
    const StatusOr<Placement> placement =
        Place({.flat = flat, .devices = devices, .candidates = candidates, .costs = costs}, &unplaced);
    ASSERT_TRUE(placement.ok()) << c.name;
    std::vector<DeviceIndex> got;
    for (const Task& task : placement->tasks) {
      got.push_back(task.device);
    }
    EXPECT_EQ(got, c.want) << c.name;
  }
}

// Outputs end in host memory: the transfer there is part of the cost.
TEST(PlacementTest, CountsTheWayBack) {
  const std::vector<DeviceFacts> devices = {{.id = "cpu:0"}, {.id = "gpu:0", .space = 1}};
  FlatGraph flat = Chain(2, 1 << 20);
  const std::vector<std::vector<Candidate>> candidates = {{{.device = 1}}, {{.device = 1}, {.device = 0}}};
  const ConstantCosts costs;
  uint32_t unplaced = 0;
  const auto place = [&] {
    return Place({.flat = flat, .devices = devices, .candidates = candidates, .costs = costs}, &unplaced)
        ->tasks[1]
        .choice;
  };
  EXPECT_EQ(place(), 0u);  // The data is already there.
  flat.values[2].bytes = 2 << 20;
  flat.outputs = {FlatValueId(2u)};
  EXPECT_EQ(place(), 1u);  // A larger result has to come back.
}

// Nodes that all read one value and make one each.
FlatGraph Wide(uint32_t nodes, uint64_t instances) {
  FlatGraph flat = Chain(0, 64);
  for (uint32_t i = 0; i < nodes; ++i) {
    graph::FlatNode node;
    node.leaf = graph::NodeId(i);
    node.first_port = static_cast<uint32_t>(flat.ports.size());
    node.extent = {instances, 1, 1};
    flat.nodes.push_back(node);
    flat.values.push_back({.bytes = 64, .shape = {}, .producer = FlatNodeId(i)});
    flat.ports.push_back({.access = graph::Access::kIn, .in = FlatValueId(0u), .out = {}});
    flat.ports.push_back({.access = graph::Access::kOut, .in = {}, .out = FlatValueId(i + 1)});
  }
  return flat;
}

// Takes this long with all of a device, on every device.
class FixedCosts final : public CostModel {
 public:
  explicit FixedCosts(int64_t ns, bool is_estimate = false) : ns_(ns), is_estimate_(is_estimate) {}
  Cost Run(const Work&, DeviceIndex, const DeviceFacts&) const override { return {Duration(ns_), is_estimate_}; }
  Duration Transfer(uint64_t, SpaceIndex, SpaceIndex) const override { return Duration(1'000); }

 private:
  const int64_t ns_;
  const bool is_estimate_;
};

Placement PlaceOn(const FlatGraph& flat, const std::vector<DeviceFacts>& devices, const CostModel& costs,
                  std::vector<PlacementPin> pins = {}) {
  std::vector<Candidate> list;
  for (DeviceIndex d = 0; d < devices.size(); ++d) {
    list.push_back({.device = d});
  }
  const std::vector<std::vector<Candidate>> candidates(flat.nodes.size(), list);
  uint32_t unplaced = 0;
  StatusOr<Placement> placement =
      Place({.flat = flat, .devices = devices, .candidates = candidates, .costs = costs, .pins = pins}, &unplaced);
  EXPECT_TRUE(placement.ok());
  return *std::move(placement);
}

// Short launches run side by side, one per lane; a long launch uses all lanes; a launch of few instances cannot use all
// of them, so that several share the time.
TEST(PlacementTest, LanesAreUsedByShortAndNarrowLaunches) {
  const std::vector<DeviceFacts> cpu = {{.id = "cpu:0", .lanes = 4}};
  EXPECT_EQ(PlaceOn(Wide(8, 1'000), cpu, FixedCosts(1'000)).makespan, Duration(2'000));
  EXPECT_EQ(PlaceOn(Wide(1, 1'000), cpu, FixedCosts(1'000'000)).makespan, Duration(1'000'000));
  EXPECT_EQ(PlaceOn(Wide(8, 1), cpu, FixedCosts(1'000'000)).makespan, Duration(2'000'000));
}

// Two devices share the work when they are different hardware. The same silicon behind two interfaces runs one launch
// at a time, so the first device keeps everything; and a small gain on estimates moves nothing away from it either.
TEST(PlacementTest, DevicesOfOneSiliconContend) {
  std::vector<DeviceFacts> devices = {{.id = "cpu:0", .silicon = 0}, {.id = "opencl:0", .silicon = 1}};
  const Placement apart = PlaceOn(Wide(4, 1), devices, FixedCosts(100'000));
  EXPECT_EQ(apart.makespan, Duration(200'000));
  EXPECT_EQ(apart.estimated_nodes, 0u);
  EXPECT_EQ(PlaceOn(Wide(4, 1), devices, FixedCosts(100'000, true)).estimated_nodes, 4u);
  devices[1].silicon = 0;
  const Placement same = PlaceOn(Wide(4, 1), devices, FixedCosts(100'000));
  EXPECT_EQ(same.makespan, Duration(400'000));
  for (const Task& task : same.tasks) {
    EXPECT_EQ(task.device, 0u);
  }
}

// A faster device behind a slow link is worth it when its inputs stay there for many runs.
TEST(PlacementTest, RepetitionsPayTheWayOnce) {
  class Costs final : public CostModel {
   public:
    Cost Run(const Work&, DeviceIndex device, const DeviceFacts&) const override {
      return {.time = std::chrono::microseconds(device == 1 ? 100 : 10), .is_estimate = false};
    }
    Duration Transfer(uint64_t, SpaceIndex, SpaceIndex) const override { return std::chrono::milliseconds(1); }
  };
  FlatGraph flat = Chain(2, 1 << 20);
  flat.outputs = {FlatValueId(2u)};
  const std::vector<std::vector<Candidate>> candidates(2, {{.device = 1}, {.device = 3}});
  const Costs costs;
  const auto place = [&](uint32_t repeat) {
    uint32_t unplaced = 0;
    return *Place({.flat = flat, .devices = kDevices, .candidates = candidates, .costs = costs, .repeat = repeat},
                  &unplaced);
  };
  EXPECT_EQ(place(1).tasks[0].device, 1u);
  EXPECT_EQ(place(1).makespan, std::chrono::microseconds(200));
  EXPECT_EQ(place(100).tasks[0].device, 3u);
  EXPECT_EQ(place(100).makespan, std::chrono::microseconds(10 + 20 + 10));
}

// A pin outranks the normal choice, for its node alone; a pin that names no candidate is ignored.
TEST(PlacementTest, PinsOutrankCosts) {
  const std::vector<DeviceFacts> devices = {{.id = "cpu:0", .silicon = 0}, {.id = "gpu:0", .space = 1, .silicon = 1}};
  const Placement placement = PlaceOn(Wide(3, 1), devices, FixedCosts(100), {{FlatNodeId(1u), 1}, {FlatNodeId(2u), 7}});
  for (const Task& task : placement.tasks) {
    EXPECT_EQ(task.device, task.node.index == 1 ? 1u : 0u);
  }
}

// Estimates of absurd sizes neither overflow nor lose their order.
TEST(PlacementTest, StaticCostsSaturate) {
  const StaticCosts costs;
  const Work work{.leaf = {}, .instances = ~uint64_t{0}, .bytes = uint64_t{1} << 63};
  const Duration run = costs.Run(work, 0, {.id = "cpu:0"}).time;
  EXPECT_GT(run, std::chrono::hours(1));
  EXPECT_GT(run + run, run);
  EXPECT_GT(costs.Transfer(~uint64_t{0}, 0, 1), std::chrono::hours(1));
}

}  // namespace
}  // namespace hpvm::scheduler
