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
#include "scheduler/cost_model.h"
#include "scheduler/task.h"

namespace hpvm::scheduler {

// One way to run a leaf: a device that has loaded one of its variants.
struct Candidate {
  static constexpr uint32_t kNoHint = 0xffffffffu;
  DeviceIndex device = 0;
  uint32_t variant = 0;
  uint32_t hint = kNoHint;  // Rank among the node's hints; 0 is the first.
};

struct PlacementInput {
  const graph::FlatGraph& flat;
  std::span<const DeviceFacts> devices;
  // By leaf (NodeId's index); in order of preference. A leaf of `flat` without candidates is an error.
  std::span<const std::vector<Candidate>> candidates;
  const CostModel& costs;
  // Whether a candidate can run this launch (its sizes against the device's limits). Empty: every one can.
  std::function<bool(uint32_t node, const Candidate& candidate)> can_run{};
  // Lets launches be split over devices; null: none is. Borrowed.
  const AccessModel* accesses = nullptr;
};

struct Placement {
  // Every instance of every node once. In an order that respects every edge and every in-place update (who reads a
  // value stands before who replaces it, unless the graph's own order says otherwise), by planned start.
  std::vector<Task> tasks;
  Duration makespan{0};         // As planned.
  uint64_t estimated_nodes = 0;  // Nodes whose time was never measured.
  // Flat nodes that run on another device than a real one because nothing better can.
  uint64_t fallback_nodes = 0;
};

// kFailedPrecondition when a node has no candidate that can run it; the caller names it by `flat.nodes[*unplaced]`.
StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_PLACEMENT_H_
