// SPDX-License-Identifier: Apache-2.0
// Chooses the device and the kernel variant that run each node of a flat graph. Pure: facts in, a decision out.
//
// Method: list scheduling. Nodes are taken in the order of a rank, and each is placed where it ends first (or where it
// and its successors end first), in the earliest gap that fits, with transfers planned on the links they use. The ranks
// are those of HEFT (Topcuoglu, Hariri, Wu 2002) in several variants and the optimistic cost table of PEFT (Arabnejad,
// Barbosa 2014). Graphs of up to some thousand nodes try all of them and then a local search; larger graphs try a few.
// One evaluator compares all plans. Costs come through CostModel, so that measured history can replace estimates
// without a change here.
//
// Model of a run: a value is in the space where it was made, or in host memory if it is an input of the graph. A launch
// needs a copy of everything it reads in its device's space; an existing copy serves all readers. Transfers pass
// through host memory, one at a time in each direction of a space's link; transfers of devices without copy lanes keep
// the device busy. Outputs have to return to host memory before the run ends. Devices of one silicon share its lanes; a
// launch has one lane or all. A launch that updates a value in place waits for the readers of the old value in the same
// space.
//
// Tiers take precedence over costs: a node runs on an emulated device (the host's processor behind a GPU interface)
// only when no real device can run it, on a reference device (the interpreter) only when no emulated device can either,
// and on the null device only when no other device can, or when its document names that device.
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

// Forces a launch to run by this candidate, whatever its cost.
struct PlacementPin {
  graph::FlatNodeId node;
  uint32_t choice = 0;
};

inline constexpr uint64_t kPlacementEffort = 60'000;

struct PlacementInput {
  const graph::FlatGraph& flat;
  std::span<const DeviceFacts> devices;
  // Indexed by leaf (NodeId's index), in order of preference. A leaf of `flat` without candidates is an error.
  std::span<const std::vector<Candidate>> candidates;
  const CostModel& costs;
  // Returns true when a candidate can run this launch (its sizes against the device's limits). Empty: every candidate
  // can. Called once for nodes of one leaf with equal extents, groups and port sizes, as is `costs`; with `works` also
  // only for equal scalars.
  std::function<bool(uint32_t node, const Candidate& candidate)> can_run{};
  // Allows launches to be split over devices; null: no launch is split. Borrowed.
  const AccessModel* accesses = nullptr;
  const WorkModel* works = nullptr;  // Null means PortWork. Borrowed.
  // Sorted by node. Pins are preferences: a pin that the candidate cannot run is ignored; other pins outrank tiers and
  // hints.
  std::span<const PlacementPin> pins{};
  // Number of launches that the local search may plan, counted over all attempts; 0: only the quick attempts are made.
  uint64_t effort = kPlacementEffort;
  uint64_t seed = 1;             // Seed of the search. Equal inputs give equal placements.
  bool wants_transfers = false;  // Fills Placement::transfers.
  uint32_t pieces_max = 4;       // Number of pieces per device of a split launch.
  // Number of consecutive runs that hand their values on in place: the graph's inputs are transferred, and its outputs
  // returned, once for all of them. The makespan is that of one run.
  uint32_t repeat = 1;
};

// A transfer of a value, or of a part of it, between spaces, one of which is host memory.
struct PlannedTransfer {
  graph::FlatValueId value;
  ByteRange range;
  SpaceIndex from = kHostSpace, to = kHostSpace;
  Duration start{0}, end{0};
};

struct Placement {
  // Every instance of every node, once, by planned start, in an order that respects every edge and every in-place
  // update (readers of a value precede the launch that replaces it, unless the graph's own order requires otherwise).
  std::vector<Task> tasks;
  Duration makespan{0};          // Planned length.
  uint64_t estimated_nodes = 0;  // Number of nodes whose time was never measured.
  // Number of flat nodes that run on a device that is not a real one because no better device can run them.
  uint64_t fallback_nodes = 0;
  std::vector<PlannedTransfer> transfers;  // Set if requested, sorted by start.
  // The plan without cuts, when a plan with cuts promises more: the caller can compare the memory plans of both
  // (scheduler/residency/forecast.h). Empty when nothing is cut.
  std::vector<Task> uncut;
};

// Returns kFailedPrecondition when no candidate can run some node; the caller names it by `flat.nodes[*unplaced]`.
StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_H_
