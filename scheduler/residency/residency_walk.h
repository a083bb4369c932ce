// SPDX-License-Identifier: Apache-2.0
// Of PlanResidency: goes through the tasks in order and decides where every value lies, in which ranges of bytes.
//
// The result is a Residency with steps and touches, not yet cut into segments.
#ifndef HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_WALK_H_
#define HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_WALK_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "scheduler/residency/arena.h"
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
  static constexpr uint32_t kNone = 0xffffffffu;
  static constexpr SpaceIndex kZeros = 0xffffffffu;  // The space of bytes that are zero and lie nowhere.

  // Bytes of one value in one space.
  struct Copy {
    uint32_t next = kNone;  // Of the same value.
    SpaceIndex space = kHostSpace;
    StorageId storage{};
    bool is_temporary = false;
    bool is_writable = false;
    bool is_pinned = false;  // The task that is worked on uses it.
    graph::FlatValueId value{};
    uint32_t next_use = 0;      // Where it can be evicted: the group that needs it next.
    uint32_t last_use = kNone;  // And the one that used it last.
    DeviceIndex device = 0;     // Wrote to it last.
    Duration until{0};          // When its last user ends, as planned.
    RangeSet valid{};
  };

  // What a space with a budget holds.
  struct Residents {
    bool has_budget = false;
    SpaceIndex overflow = SpaceFacts::kNone;
    std::map<uint64_t, uint32_t> by_offset;               // Copies.
    std::set<std::pair<uint32_t, uint32_t>> by_next_use;  // (Copy::next_use, copy).
    // The group that is worked on there, and the two before it.
    std::array<uint32_t, 3> groups{kNone, kNone, kNone};
  };
  // Copies that lie side by side, with free memory between them.
  struct Window {
    std::vector<uint32_t> copies;
    uint64_t begin = 0, end = 0;
    uint32_t next_use = 0xffffffffu;  // The earliest of them.
    uint64_t traffic = 0;             // Bytes to be moved out, and back in later.
    bool is_recent = false;           // To be waited for: tasks that use it may still run then.
  };

  uint64_t BytesOf(graph::FlatValueId value) const { return input_.flat.values[value.index].bytes; }
  SpaceIndex SpaceOf(DeviceIndex device) const { return input_.devices[device].space; }
  void FindMovers();
  void AddPorts();

  uint32_t AddCopy(graph::FlatValueId value, Copy copy);
  void DropCopy(graph::FlatValueId value, uint32_t copy);
  void DropValue(graph::FlatValueId value);
  // Memory for the value in a space. `start`: when what uses it begins.
  StatusOr<uint32_t> NewCopy(graph::FlatValueId value, SpaceIndex space, Duration start);
  StatusOr<uint32_t> Ensure(graph::FlatValueId value, DeviceIndex device, const RangeSet& need, bool writes);
  // Brings bytes of `source` to `target`, a copy of the same value or of its next version.
  Status Fill(graph::FlatValueId source, uint32_t target, RangeSet missing, DeviceIndex device);
  void TakeFrom(uint32_t source, uint32_t target, RangeSet& missing, DeviceIndex device);
  bool IsNear(SpaceIndex source, SpaceIndex target) const {
    return source == target || source == kHostSpace || target == kHostSpace;
  }

  // residency_evict.cc
  void NoteResident(uint32_t copy);
  void ForgetResident(uint32_t copy);
  void UpdateNextUse(uint32_t copy);
  uint32_t NextUse(graph::FlatValueId value, SpaceIndex space);
  void Pin(uint32_t copy);
  void Unpin(uint32_t copy);
  void UnpinAll();
  // Makes room for so many bytes, if that can be; false: it cannot.
  StatusOr<bool> MakeRoom(SpaceIndex space, uint64_t bytes);
  Window WindowAt(SpaceIndex space, uint32_t copy, uint64_t bytes);
  bool MayEvict(uint32_t copy);
  bool IsRecent(uint32_t copy, bool is_written_back) const;
  RangeSet OnlyIn(uint32_t copy) const;
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
  bool IsIn(graph::FlatValueId value, StorageId storage) const;
  bool IsInUse(StorageId storage) const;
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
  Uses uses_;
  SpaceIndex spaces_ = 1;
  std::vector<DeviceIndex> mover_;    // By space.
  std::vector<Arena> arenas_;         // By space.
  std::vector<Residents> residents_;  // By space.
  bool has_budgets_ = false;
  bool has_copy_lanes_ = false;           // Of any device.
  std::vector<uint32_t> next_value_use_;  // By value: in Uses::value_uses, the first that is not over.
  std::vector<uint32_t> pins_;
  uint32_t group_ = 0;                                                // That is worked on.
  std::unordered_map<uint64_t, std::vector<StorageId>> storages_at_;  // Temporaries by a hash of their place.
  std::vector<StorageId> output_storage_;                             // By output.
  std::deque<Copy> copies_;
  std::vector<uint32_t> free_copies_;
  std::vector<uint32_t> first_copy_;  // By value.
  Duration start_{0}, end_{0};        // Of the task that is worked on.
  std::vector<PortAccess> accesses_;  // Of the task that is worked on, by port.
  std::vector<uint32_t> port_copies_;
  std::vector<RangeSet> written_;  // By port of the node: what its parts write.

  // Iterations. A carry that is not in use (nobody reads its input) has an invalid value.
  struct CarryState {
    graph::FlatValueId input{}, output{};
    std::map<SpaceIndex, StorageId> from{};  // What its input is read from.
    std::map<SpaceIndex, StorageId> next{};  // Memory of its own for the output, where that is needed.
    std::map<SpaceIndex, StorageId> made{};  // Where the output is when the body ends.
  };
  const CarryLayout& layout_;
  std::vector<CarryState> carries_;
  std::vector<uint32_t> chain_carry_;  // By value: the carry in whose memory its chain of updates ends.
  std::vector<StorageId> carried_;     // Storages that are nobody else's; their places come last.
  std::map<std::pair<uint32_t, SpaceIndex>, RangeSet> input_copies_;  // By value and space.
  CarryLayout natural_;
  uint64_t restored_bytes_ = 0;
  uint32_t body_begin_ = 0, body_end_ = 0;
  Residency out_;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_WALK_H_
