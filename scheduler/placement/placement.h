// SPDX-License-Identifier: Apache-2.0
// Which device runs each node of a flat graph, and by which variant. Pure: facts in, a decision out.
//
// List scheduling: nodes in the order of a rank, each where it ends first (or where it and what follows end first), in
// the earliest gap that fits, with transfers planned on the links they use. The ranks are those of HEFT (Topcuoglu,
// Hariri, Wu 2002) in several variants and the optimistic cost table of PEFT (Arabnejad, Barbosa 2014); graphs of some
// thousand nodes try them all, and then look for something better nearby; larger ones take a few. One evaluator says
// which plan is best. Costs come through CostModel, so that measured history can replace the estimates without a change
// here.
//
// The model of a run. A value is where it was made, or in host memory if the graph was given it; a launch needs a copy
// of all it reads in its device's space, and a copy that is there already serves everybody. Transfers pass through host
// memory, one at a time on each direction of a space's link; of devices without copy lanes they keep the device busy.
// What the caller gets has to come back to host memory before the run ends. Devices of one silicon share its lanes; a
// launch has one lane, or all. Who updates a value in place waits for those that read it in the same space.
//
// Tiers come before costs: a node runs on an emulated device (the host's processor behind a GPU's interface) only when
// no real device can run it, on a reference device (the interpreter) only when those cannot either, and on the null
// device only when nothing else can, or when its document names that device.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "graph/flatten.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/task.h"

namespace hpvm::scheduler {

// One way to run a leaf: a device that has loaded one of its variants.
struct Candidate {
  static constexpr uint32_t kNoHint = 0xffffffffu;
  DeviceIndex device = 0;
  uint32_t variant = 0;
  uint32_t hint = kNoHint;  // Rank among the node's hints; 0 is the first.
};

// A launch that is to run by this candidate, whatever it costs.
struct PlacementPin {
  graph::FlatNodeId node;
  uint32_t choice = 0;
};

inline constexpr uint64_t kPlacementEffort = 60'000;

struct PlacementInput {
  const graph::FlatGraph& flat;
  std::span<const DeviceFacts> devices;
  // By leaf (NodeId's index); in order of preference. A leaf of `flat` without candidates is an error.
  std::span<const std::vector<Candidate>> candidates;
  const CostModel& costs;
  // Whether a candidate can run this launch (its sizes against the device's limits). Empty: every one can. Asked once
  // for nodes of one leaf with equal extents, groups and bytes of ports; so is `costs`, of equal scalars too if `works`
  // is given.
  std::function<bool(uint32_t node, const Candidate& candidate)> can_run{};
  // Lets launches be split over devices; null: none is. Borrowed.
  const AccessModel* accesses = nullptr;
  const WorkModel* works = nullptr;  // Null: PortWork. Borrowed.
  // By rising node. Wishes: one that the candidate cannot run is ignored; others outrank tiers and hints.
  std::span<const PlacementPin> pins{};
  // How many launches may be planned, again and again, in search of something better; 0: only what is quick.
  uint64_t effort = kPlacementEffort;
  uint64_t seed = 1;             // Of the search. The same input gives the same placement.
  bool wants_transfers = false;  // Fills Placement::transfers.
  uint32_t pieces_max = 4;  // Of a device's share of a launch that is split.
  // So many runs follow each other and hand their values on where they are: what the graph is given comes, and what it
  // returns goes, once for all of them, and the makespan is that of one.
  uint32_t repeat = 1;
};

// A copy of a value, or of a part of it, from space to space; one of the two is the host's.
struct PlannedTransfer {
  graph::FlatValueId value;
  ByteRange range;
  SpaceIndex from = kHostSpace, to = kHostSpace;
  Duration start{0}, end{0};
};

struct Placement {
  // Every instance of every node once. In an order that respects every edge and every in-place update (who reads a
  // value stands before who replaces it, unless the graph's own order says otherwise), by planned start.
  std::vector<Task> tasks;
  Duration makespan{0};          // As planned.
  uint64_t estimated_nodes = 0;  // Nodes whose time was never measured.
  // Flat nodes that run on another device than a real one because nothing better can.
  uint64_t fallback_nodes = 0;
  std::vector<PlannedTransfer> transfers;  // If asked for, by start.
  // The plan without cuts, where one with cuts promises more: whoever makes memory plans of both can hold them against
  // each other (scheduler/residency/forecast.h). Empty: nothing is cut.
  std::vector<Task> uncut;
};

// kFailedPrecondition when a node has no candidate that can run it; the caller names it by `flat.nodes[*unplaced]`.
StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_H_
