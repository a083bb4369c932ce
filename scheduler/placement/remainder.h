// SPDX-License-Identifier: Apache-2.0
// What is left of a run when it stopped half way: which values are still in host memory, and the smaller graph that
// makes the others. Pure.
//
// A value's bytes are told apart by who wrote them last: a byte that the launch which makes the value does not write
// (PortAccess::written of all its parts) is the byte of the value that it updates, or zero. So a value may be found in
// storages that held its predecessor, and in pieces.
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
  graph::FlatGraph flat;                 // Outputs as the whole graph's.
  std::vector<graph::FlatValueId> kept;  // Of the whole graph: the inputs of `flat` that the whole graph makes.
  std::vector<uint32_t> node_of;         // By node of `flat`: the whole graph's.
};

// The nodes that the outputs still need when the values in `is_kept` (by value of `whole`) need not be made. Kept
// values have FlatValue::input = first_input + their index in Remainder::kept; the graph's inputs keep theirs.
Remainder Remain(const graph::FlatGraph& whole, const std::vector<bool>& is_kept, uint32_t first_input);

enum class SegmentState : uint8_t { kUntouched, kDone, kBroken };  // kBroken: some of its steps may have run.

// Bytes [begin, end) of a value, which `storage` holds.
struct HeldPiece {
  StorageId storage;
  ByteRange range;
};

struct HeldInput {
  const graph::FlatGraph& flat;
  std::span<const Task> tasks;
  const AccessModel& accesses;
  const Residency& residency;
  std::span<const SegmentState> states;  // By segment; the body's.
};

// By value: where its bytes are in host space, in order and without gaps; empty when some are not (and for the graph's
// own inputs, and for values without bytes). Looks at the body's segments, as of a plan without carries.
std::vector<std::vector<HeldPiece>> FindHeld(const HeldInput& input);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_PLACEMENT_REMAINDER_H_
