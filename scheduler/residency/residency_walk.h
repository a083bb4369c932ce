// SPDX-License-Identifier: Apache-2.0
// Of PlanResidency: goes through the tasks in order and decides where every value lies, in which ranges of bytes.
//
// The result is a Residency with steps and touches, not yet cut into segments.
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

// What stands where when an iteration begins. The end of the body makes it so again.
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
  bool is_known = false;                      // Not yet: the first look at the body.
  std::vector<std::vector<Piece>> carried{};  // By carry; all bytes of each.
  std::vector<Resident> inputs{};             // Copies of inputs that stay the same.
  std::vector<uint64_t> reserved{};           // By space: what all of these take.
};

class ResidencyWalk {
 public:
  ResidencyWalk(const ResidencyInput& input, const CarryLayout& layout);
  // Once. `*culprit`: the task that was worked on when it failed.
  StatusOr<Residency> Run(uint32_t* culprit);

  // After Run. Where its steps begin that belong to the body and to the epilogue.
  uint32_t body_begin() const { return body_begin_; }
  uint32_t body_end() const { return body_end_; }
  // Where carried values were when the body ended, before anything was moved for the next one, and what of inputs went
  // to other spaces.
  const CarryLayout& natural_layout() const { return natural_; }
  // Bytes that were moved for the next iteration when all else was done.
  uint64_t restored_bytes() const { return restored_bytes_; }

 private:
  using Copy = CopyTable::Copy;
  static constexpr uint32_t kNone = CopyTable::kNone;
  static constexpr SpaceIndex kZeros = 0xffffffffu;  // The space of bytes that are zero and lie nowhere.

  uint64_t BytesOf(graph::FlatValueId value) const { return input_.flat.values[value.index].bytes; }
  SpaceIndex SpaceOf(DeviceIndex device) const { return input_.devices[device].space; }
  void FindMovers();
  void AddPorts();

  // Memory for the value in a space. `start`: when what uses it begins.
  StatusOr<uint32_t> NewCopy(graph::FlatValueId value, SpaceIndex space, Duration start);
  // Temporary memory for these bytes of the value.
  StatusOr<uint32_t> NewTemporary(graph::FlatValueId value, SpaceIndex space, Duration start, ByteRange range);
  StatusOr<uint32_t> Ensure(graph::FlatValueId value, DeviceIndex device, const RangeSet& need, bool writes);
  // Brings bytes of `source` to `target`, a copy of the same value or of its next version.
  Status Fill(graph::FlatValueId source, uint32_t target, RangeSet missing, DeviceIndex device);
  // Whether bytes of the value pass through host memory of their own, and not through a copy of all of it.
  bool NeedsWindow(graph::FlatValueId value, ByteRange range);
  void TakeFrom(uint32_t source, uint32_t target, RangeSet& missing, DeviceIndex device);
  bool IsNear(SpaceIndex source, SpaceIndex target) const {
    return source == target || source == kHostSpace || target == kHostSpace;
  }

  // residency_evict.cc
  // Makes room for so many bytes, if that can be; false: it cannot.
  StatusOr<bool> MakeRoom(SpaceIndex space, uint64_t bytes);
  Status Evict(uint32_t copy);
  Status EvictAll(SpaceIndex space);
  Status DoesNotFit(SpaceIndex space, uint64_t bytes) const;

  Status AddGroup(const TaskGroup& group, uint32_t index);
  // An output port's value before the node has written to it.
  void BeginValue(graph::FlatNodeId node, uint32_t group, uint32_t port);
  Status AddTask(uint32_t task);
  Status EnsurePorts(uint32_t task);
  void PinResidents(const graph::FlatPort& port, SpaceIndex space);
  Status EnsureTask(uint32_t task);
  Status EnsureExtents(uint32_t task);
  StatusOr<uint32_t> EnsurePort(uint32_t task, uint32_t port, const PortAccess& access);
  void NoteWrite(graph::FlatValueId value, uint32_t copy, ByteRange written);
  // Bytes of an old version, still wanted elsewhere, that no part of the node writes.
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
  // Memory of its own for a value that ends as a carried one; invalid: it does not, or not there.
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
  std::vector<DeviceIndex> mover_;                                    // By space.
  bool has_copy_lanes_ = false;                                       // Of any device.
  std::unordered_map<uint64_t, std::vector<StorageId>> storages_at_;  // Temporaries by a hash of their place.
  std::vector<StorageId> output_storage_;                             // By output.
  Duration start_{0}, end_{0};                                        // Of the task that is worked on.
  std::vector<PortAccess> accesses_;                                  // Of the task that is worked on, by port.
  std::vector<uint32_t> port_copies_;
  std::vector<RangeSet> written_;                   // By port of the node: what its parts write.
  std::vector<std::vector<uint64_t>> part_begins_;  // By value: where what parts wrote of it begins.

  // Iterations. A carry that is not in use (nobody reads its input) has an invalid value.
  struct CarryState {
    graph::FlatValueId input{}, output{};
    std::map<SpaceIndex, StorageId> from{};  // What its input is read from.
    std::map<SpaceIndex, StorageId> next{};  // Memory of its own for the output, where that is needed.
    std::map<SpaceIndex, StorageId> made{};  // Where the output is when the body ends.
  };
  std::vector<CarryState> carries_;
  std::vector<uint32_t> chain_carry_;  // By value: the carry in whose memory its chain of updates ends.
  std::vector<StorageId> carried_;     // Storages that are nobody else's; their places come last.
  std::map<std::pair<uint32_t, SpaceIndex>, RangeSet> input_copies_;  // By value and space.
  CarryLayout natural_;
  uint64_t restored_bytes_ = 0;
  uint32_t body_begin_ = 0, body_end_ = 0;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_WALK_H_
