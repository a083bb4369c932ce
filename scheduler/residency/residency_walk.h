// SPDX-License-Identifier: Apache-2.0
// ResidencyWalk, a part of PlanResidency, processes the tasks in order and decides where every value is, by ranges of
// bytes.
//
// The result is a Residency with steps and touches that is not yet cut into segments.
#ifndef HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_WALK_H_
#define HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_WALK_H_

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "scheduler/residency/copy_table.h"
#include "scheduler/residency/range_set.h"
#include "scheduler/residency/residency.h"
#include "scheduler/residency/residency_uses.h"

namespace hpvm::scheduler {

// Locations of values at the beginning of an iteration, which the end of the body restores.
struct CarryLayout {
  struct Piece {
    SpaceIndex space = kHostSpace;
    RangeSet ranges{};
  };
  struct Resident {
    graph::FlatValueId value{};
    SpaceIndex space = kHostSpace;
    RangeSet ranges{};
  };
  bool is_known = false;                      // False for the first plan of the body.
  std::vector<std::vector<Piece>> carried{};  // Indexed by carry; covers all bytes of each.
  std::vector<Resident> inputs{};             // Copies of inputs that do not change.
  std::vector<uint64_t> reserved{};           // Indexed by space: bytes occupied by all of these.
};

class ResidencyWalk {
 public:
  ResidencyWalk(const ResidencyInput& input, const CarryLayout& layout);
  // Call once. `*culprit` receives the current task on failure.
  StatusOr<Residency> Run(uint32_t* culprit);

  // After Run: the first step of the body, and of the epilogue.
  uint32_t body_begin() const { return body_begin_; }
  uint32_t body_end() const { return body_end_; }
  // Locations of carried values when the body ended, before anything was moved for the next one, and copies of inputs
  // made in other spaces.
  const CarryLayout& natural_layout() const { return natural_; }
  // Bytes moved for the next iteration after everything else was done.
  uint64_t restored_bytes() const { return restored_bytes_; }

 private:
  using Copy = CopyTable::Copy;
  static constexpr uint32_t kNone = CopyTable::kNone;
  static constexpr SpaceIndex kZeros = 0xffffffffu;  // Pseudo-space of bytes that are zero and are in no memory.

  uint64_t BytesOf(graph::FlatValueId value) const { return input_.flat.values[value.index].bytes; }
  SpaceIndex SpaceOf(DeviceIndex device) const { return input_.devices[device].space; }
  void FindMovers();
  void AddPorts();

  // Allocates memory for the value in a space. `start` is when its user begins.
  StatusOr<uint32_t> NewCopy(graph::FlatValueId value, SpaceIndex space, Duration start);
  // Allocates temporary memory for these bytes of the value.
  StatusOr<uint32_t> NewTemporary(graph::FlatValueId value, SpaceIndex space, Duration start, ByteRange range);
  StatusOr<uint32_t> Ensure(graph::FlatValueId value, DeviceIndex device, const RangeSet& need, bool writes);
  // Copies bytes of `source` to `target`, a copy of the same value or of its next version.
  Status Fill(graph::FlatValueId source, uint32_t target, RangeSet missing, DeviceIndex device);
  // Returns true when the bytes should pass through a host storage of their own size rather than a copy of the whole
  // value.
  bool NeedsWindow(graph::FlatValueId value, ByteRange range);
  void TakeFrom(uint32_t source, uint32_t target, RangeSet& missing, DeviceIndex device);
  bool IsNear(SpaceIndex source, SpaceIndex target) const {
    return source == target || source == kHostSpace || target == kHostSpace;
  }

  // residency_evict.cc
  // Makes room for `bytes`; returns false when that is impossible.
  StatusOr<bool> MakeRoom(SpaceIndex space, uint64_t bytes);
  Status Evict(uint32_t copy);
  Status EvictAll(SpaceIndex space);
  Status DoesNotFit(SpaceIndex space, uint64_t bytes) const;

  Status AddGroup(const TaskGroup& group, uint32_t index);
  // Prepares an output port's value before the node writes to it.
  void BeginValue(graph::FlatNodeId node, uint32_t group, uint32_t port);
  Status AddTask(uint32_t task);
  Status EnsurePorts(uint32_t task);
  void PinResidents(const graph::FlatPort& port, SpaceIndex space);
  Status EnsureTask(uint32_t task);
  Status EnsureExtents(uint32_t task);
  StatusOr<uint32_t> EnsurePort(uint32_t task, uint32_t port, const PortAccess& access);
  void NoteWrite(graph::FlatValueId value, uint32_t copy, ByteRange written);
  // Keeps bytes of an old version that are still needed elsewhere and that no part of the node writes.
  Status KeepRest(const TaskGroup& group, uint32_t port);
  void EndGroup(const TaskGroup& group, uint32_t index);
  Status AddOutputs();
  Status AddOutput(uint32_t output);
  Status AddOnHost();

  // residency_carry.cc
  void FindCarries();
  void BeginCarries();
  Status EndBody();
  void NoteLayout();
  StorageId Bring(uint32_t source, graph::FlatValueId value, SpaceIndex space, const RangeSet& ranges,
                  bool is_writable);
  bool MayBegin(uint32_t carry, SpaceIndex space, StorageId storage, uint32_t* other);
  Status RestoreCarry(uint32_t carry, const CarryLayout::Piece& piece);
  void AddSwaps();
  StorageId NewCarried(SpaceIndex space, uint64_t bytes);
  void NoteInputCopy(const Copy& source, SpaceIndex target, ByteRange range);
  Status PlaceCarried();
  // Returns the separate memory of a value that ends as a carried value in `space`; invalid when there is none.
  StorageId CarriedFor(graph::FlatValueId value, SpaceIndex space);

  void AddStep(Step step);
  void AddTouch(StorageId storage, bool writes, ByteRange range) {
    if (!range.is_empty()) {
      out_.touches.push_back({storage, writes, range});
    }
  }
  void EmitCopy(uint32_t source, uint32_t target, ByteRange range, DeviceIndex device);

  const ResidencyInput& input_;
  const graph::FlatGraph& flat_;
  const CarryLayout& layout_;
  const SpaceIndex spaces_;
  Uses uses_;
  Residency out_;
  CopyTable copies_;
  std::vector<DeviceIndex> mover_;                                    // Indexed by space.
  bool has_copy_lanes_ = false;                                       // True when any device has copy lanes.
  std::unordered_map<uint64_t, std::vector<StorageId>> storages_at_;  // Temporaries by a hash of their location.
  std::vector<StorageId> output_storage_;                             // Indexed by output.
  Duration start_{0}, end_{0};                                        // Times of the current task.
  std::vector<PortAccess> accesses_;                                  // Accesses of the current task, by port.
  std::vector<uint32_t> port_copies_;
  std::vector<RangeSet> written_;                   // Indexed by port of the node: the bytes written by its parts.
  std::vector<std::vector<uint64_t>> part_begins_;  // Indexed by value: the beginnings of the ranges that parts wrote.

  // Iterations. A carry whose input has no reader is unused and has an invalid value.
  struct CarryState {
    graph::FlatValueId input{}, output{};
    std::map<SpaceIndex, StorageId> from{};  // Storage from which its input is read.
    std::map<SpaceIndex, StorageId> next{};  // Separate memory for the output, when needed.
    std::map<SpaceIndex, StorageId> made{};  // Storage of the output when the body ends.
  };
  std::vector<CarryState> carries_;
  std::vector<uint32_t> chain_carry_;  // Indexed by value: the carry in whose memory its chain of updates ends.
  std::vector<StorageId> carried_;     // Storages used by carries alone; they are placed last.
  std::map<std::pair<uint32_t, SpaceIndex>, RangeSet> input_copies_;  // Keyed by value and space.
  CarryLayout natural_;
  uint64_t restored_bytes_ = 0;
  uint32_t body_begin_ = 0, body_end_ = 0;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_WALK_H_
