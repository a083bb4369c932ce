// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement.h"

#include <gtest/gtest.h>

#include <vector>

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatValueId;

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
                                           {.id = "gpu:0", .space = 1}};

std::vector<DeviceIndex> DevicesOf(const FlatGraph& flat, const std::vector<std::vector<Candidate>>& candidates,
                                   uint64_t* fallback = nullptr) {
  const ConstantCosts costs;
  uint32_t unplaced = 0;
  const StatusOr<Placement> placement =
      Place({.flat = flat, .devices = kDevices, .candidates = candidates, .costs = costs}, &unplaced);
  EXPECT_TRUE(placement.ok());
  std::vector<DeviceIndex> out;
  for (size_t i = 0; i < placement->choice.size(); ++i) {
    out.push_back(candidates[flat.nodes[i].leaf.index][placement->choice[i]].device);
  }
  if (fallback != nullptr) {
    *fallback = placement->fallback_nodes;
  }
  return out;
}

// Tiers come before everything else, and what had to fall back is counted.
TEST(PlacementTest, PrefersRealDevices) {
  uint64_t fallback = 0;
  EXPECT_EQ(
      DevicesOf(
          Chain(3, 4),
          {{{.device = 2}, {.device = 0, .hint = 0}, {.device = 1}}, {{.device = 2}, {.device = 0}}, {{.device = 2}}},
          &fallback),
      (std::vector<DeviceIndex>{1, 0, 2}));
  EXPECT_EQ(fallback, 2u);
}

// Among real devices a hint wins; without one the data's place does; equal costs go to the first candidate.
TEST(PlacementTest, HintsThenDataThenOrder) {
  EXPECT_EQ(DevicesOf(Chain(3, 1 << 20), {{{.device = 1}, {.device = 3, .hint = 0}},
                                          {{.device = 1}, {.device = 3}},
                                          {{.device = 1, .hint = 1}, {.device = 3}}}),
            (std::vector<DeviceIndex>{3, 3, 1}));
  EXPECT_EQ(DevicesOf(Chain(1, 4), {{{.device = 1, .variant = 0}, {.device = 1, .variant = 1}}}),
            (std::vector<DeviceIndex>{1}));
}

// A node that nothing can run is reported by its index.
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

}  // namespace
}  // namespace hpvm::scheduler
