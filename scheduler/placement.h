// SPDX-License-Identifier: Apache-2.0
// Which device runs each node of a flat graph, and by which variant. Pure: facts in, a decision out.
//
// Greedy in execution order: each node goes where its own cost plus the cost of moving its inputs there, and what it
// makes for the caller back, is least; ties go to hints, then to the order of candidates. Costs come through CostModel,
// so that measured history can replace the estimates without a change here.
//
// Tiers come before costs: a node runs on an emulated device (the host's processor behind a GPU's interface) only when
// no real device can run it, on a reference device (the interpreter) only when those cannot either, and on the null
// device only when nothing else can, or when its document names that device.
#ifndef HPVMD_SCHEDULER_PLACEMENT_H_
#define HPVMD_SCHEDULER_PLACEMENT_H_

#include <cstdint>
#include <functional>
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

enum class Tier : uint8_t { kReal, kEmulated, kReference, kNull };

struct DeviceFacts {
  std::string id;
  Tier tier = Tier::kReal;
  SpaceIndex space = kHostSpace;
  uint32_t compute_units = 1;
  bool is_gpu = false;          // Its units run hundreds of instances at once, and launches pass through a driver.
  double bytes_per_second = 0;  // Of its memory; 0: unknown.
};

// One way to run a leaf: a device that has loaded one of its variants.
struct Candidate {
  static constexpr uint32_t kNoHint = 0xffffffffu;
  DeviceIndex device = 0;
  uint32_t variant = 0;
  uint32_t hint = kNoHint;  // Rank among the node's hints; 0 is the first.
};

// One launch.
struct Work {
  graph::NodeId leaf;
  uint64_t instances = 0;
  uint64_t bytes = 0;  // Of its ports' tensors, each once: what it reads and writes, about.
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // How long a launch takes there, its data being there.
  virtual Duration Run(const Work& work, const DeviceFacts& device) const = 0;
  // How long `bytes` take between two different spaces.
  virtual Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const = 0;
};

// Every launch costs the same everywhere; transfers cost 10 µs and 10 GB/s. For tests of what does not depend on costs.
class ConstantCosts final : public CostModel {
 public:
  Duration Run(const Work& work, const DeviceFacts& device) const override;
  Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const override;
};

// From the devices' facts alone, what is used until there is history: the start of a launch, and the larger of its
// bytes at the memory's speed and its instances at a typical one's, spread over the compute units. What an instance
// takes is a guess (it may loop once or a million times); that a small launch stays where its data is and a large one
// goes to the stronger device does not depend on it much.
class StaticCosts final : public CostModel {
 public:
  Duration Run(const Work& work, const DeviceFacts& device) const override;
  Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const override;
};

struct PlacementInput {
  const graph::FlatGraph& flat;
  std::span<const DeviceFacts> devices;
  // By leaf (NodeId's index); in order of preference. A leaf of `flat` without candidates is an error.
  std::span<const std::vector<Candidate>> candidates;
  const CostModel& costs;
  // Whether a candidate can run this launch (its sizes against the device's limits). Empty: every one can.
  std::function<bool(uint32_t node, const Candidate& candidate)> can_run{};
};

struct Placement {
  std::vector<uint32_t> choice;  // By flat node: index in the candidates of its leaf.
  // Flat nodes that run on another device than a real one because nothing better can.
  uint64_t fallback_nodes = 0;
};

// kFailedPrecondition when a node has no candidate that can run it; the caller names it by `flat.nodes[*unplaced]`.
StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_PLACEMENT_H_
