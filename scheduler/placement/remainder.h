// SPDX-License-Identifier: Apache-2.0
// Computes what remains of a run that stopped half way: which values are still in host memory, and the smaller graph
// that makes the others. Pure.
//
// A value's bytes are distinguished by their last writer: a byte that the launch which makes the value does not write
// (PortAccess::written of all its parts) is the byte of the value that it updates, or zero. A value may therefore be
// found in storages that held its predecessor, and in pieces.
#ifndef HPVMD_SCHEDULER_PLACEMENT_REMAINDER_H_
#define HPVMD_SCHEDULER_PLACEMENT_REMAINDER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "graph/flatten.h"
#include "scheduler/residency/residency.h"
#include "scheduler/task.h"

namespace hpvm::scheduler {

struct Remainder {
  graph::FlatGraph flat;                 // Has the same outputs as the whole graph.
  std::vector<graph::FlatValueId> kept;  // Values of the whole graph that it makes and that are inputs of `flat`.
  std::vector<uint32_t> node_of;         // Indexed by node of `flat`: the node of the whole graph.
};

// Returns the nodes that the outputs still need when the values in `is_kept` (by value of `whole`) need not be made.
// Kept values have FlatValue::input = first_input + their index in Remainder::kept; the graph's inputs keep theirs.
Remainder BuildRemainder(const graph::FlatGraph& whole, const std::vector<bool>& is_kept, uint32_t first_input);

enum class SegmentState : uint8_t { kUntouched, kDone, kBroken };  // kBroken: some of its steps may have run.

// Bytes [begin, end) of a value, held by `storage`.
struct SurvivingPiece {
  StorageId storage;
  ByteRange range;
};

struct SurvivingInput {
  const graph::FlatGraph& flat;
  std::span<const Task> tasks;
  const AccessModel& accesses;
  const Residency& residency;
  std::span<const SegmentState> states;  // Indexed by segment of the body.
};

// Returns, by value, where its bytes are in host space, in order and without gaps; empty when some are not there (and
// for the graph's inputs, and for values without bytes). Considers the body's segments, as of a plan without carries.
std::vector<std::vector<SurvivingPiece>> FindSurviving(const SurvivingInput& input);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_PLACEMENT_REMAINDER_H_
