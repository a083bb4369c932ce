// SPDX-License-Identifier: Apache-2.0
// Which device runs each node of a flat graph, and by which variant. Pure: facts in, a decision out.
//
// Greedy in execution order: each node goes where its own cost plus the cost of moving its inputs there is least; ties
// go to hints, then to the order of candidates. Costs come through CostModel, so that measured history can replace the
// constants without a change here.
//
// Tiers come before costs: a node runs on a reference device (the interpreter) only when no real device can run it, and
// on the null device only when nothing else can, or when its document names that device.
#ifndef HPVMD_SCHEDULER_PLACEMENT_H_
#define HPVMD_SCHEDULER_PLACEMENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "graph/flatten.h"

namespace hpvm::scheduler {

using DeviceIndex = uint32_t;
// Devices of one space read each other's buffers without a copy. Space 0 is host memory.
using SpaceIndex = uint32_t;
inline constexpr SpaceIndex kHostSpace = 0;

enum class Tier : uint8_t { kReal, kReference, kNull };

struct DeviceFacts {
  std::string id;
  Tier tier = Tier::kReal;
  SpaceIndex space = kHostSpace;
  uint32_t compute_units = 1;
};

// One way to run a leaf: a device that has loaded one of its variants.
struct Candidate {
  static constexpr uint32_t kNoHint = 0xffffffffu;
  DeviceIndex device = 0;
  uint32_t variant = 0;
  uint32_t hint = kNoHint;  // Rank among the node's hints; 0 is the first.
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // How long a launch of `instances` of the leaf takes there.
  virtual Duration Run(graph::NodeId leaf, const DeviceFacts& device, uint64_t instances) const = 0;
  // How long `bytes` take between two different spaces.
  virtual Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const = 0;
};

// Every launch costs the same everywhere; transfers cost 10 µs and 10 GB/s. What is used until there is history.
class ConstantCosts final : public CostModel {
 public:
  Duration Run(graph::NodeId leaf, const DeviceFacts& device, uint64_t instances) const override;
  Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const override;
};

struct PlacementInput {
  const graph::FlatGraph& flat;
  std::span<const DeviceFacts> devices;
  // By leaf (NodeId's index); in order of preference. A leaf of `flat` without candidates is an error.
  std::span<const std::vector<Candidate>> candidates;
  const CostModel& costs;
};

struct Placement {
  std::vector<uint32_t> choice;  // By flat node: index in the candidates of its leaf.
  // Flat nodes that run on a reference or null device because nothing better can.
  uint64_t fallback_nodes = 0;
};

// kFailedPrecondition when a node has no candidate; the caller names it by `flat.nodes[*unplaced]`.
StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_PLACEMENT_H_
