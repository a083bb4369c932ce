// SPDX-License-Identifier: Apache-2.0
// Of PlanResidency: which bytes of which value lie where, what is free, and what of it had best leave.
#ifndef HPVMD_SCHEDULER_RESIDENCY_COPY_TABLE_H_
#define HPVMD_SCHEDULER_RESIDENCY_COPY_TABLE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/residency/arena.h"
#include "scheduler/residency/range_set.h"
#include "scheduler/residency/residency.h"
#include "scheduler/residency/residency_uses.h"

namespace hpvm::scheduler {

class CopyTable {
 public:
  static constexpr uint32_t kNone = 0xffffffffu;

  // Bytes of one value in one space.
  struct Copy {
    uint32_t next = kNone;  // Of the same value.
    SpaceIndex space = kHostSpace;
    StorageId storage{};
    bool is_temporary = false;
    bool is_writable = false;
    bool is_window = false;  // Its storage holds a part of the value only (Storage::first); nothing runs on it.
    bool is_pinned = false;  // The task that is worked on uses it.
    graph::FlatValueId value{};
    uint32_t next_use = 0;      // Where it can be evicted: the group that needs it next.
    uint32_t last_use = kNone;  // And the one that used it last.
    DeviceIndex device = 0;     // Wrote to it last.
    Duration until{0};          // When its last user ends, as planned.
    RangeSet valid{};
  };

  // Copies that lie side by side, with free memory between them.
  struct Window {
    std::vector<uint32_t> copies;
    uint64_t begin = 0, end = 0;
    uint32_t next_use = 0xffffffffu;  // The earliest of them.
    uint64_t traffic = 0;             // Bytes to be moved out, and back in later.
    bool is_recent = false;           // To be waited for: tasks that use it may still run then.
  };

  // `reserved`: by space, what is not to be used of it. `storages` and `uses` are borrowed; BeginUses says that the
  // latter are known.
  CopyTable(const ResidencyInput& input, const std::vector<uint64_t>& reserved, SpaceIndex spaces,
            const std::vector<Storage>& storages, const Uses& uses);
  void BeginUses();
  void BeginGroup(uint32_t group) { group_ = group; }  // From now on the table works on this one,
  void NoteWork(SpaceIndex space);                     // and that it is in this space.
  bool has_budgets() const { return has_budgets_; }
  bool HasBudget(SpaceIndex space) const { return residents_[space].has_budget; }
  SpaceIndex OverflowOf(SpaceIndex space) const { return residents_[space].overflow; }
  Arena& arena(SpaceIndex space) { return arenas_[space]; }
  const Arena& arena(SpaceIndex space) const { return arenas_[space]; }

  // The copies of a value are a list: First, Copy::next.
  uint32_t First(graph::FlatValueId value) const { return first_copy_[value.index]; }
  Copy& operator[](uint32_t copy) { return copies_[copy]; }
  const Copy& operator[](uint32_t copy) const { return copies_[copy]; }
  uint32_t Add(graph::FlatValueId value, Copy copy);
  void Drop(graph::FlatValueId value, uint32_t copy);
  void DropValue(graph::FlatValueId value);
  void PassOn(graph::FlatValueId from, graph::FlatValueId to);  // `to` has none.
  bool IsIn(graph::FlatValueId value, StorageId storage) const;
  bool IsInUse(StorageId storage) const;
  RangeSet OnlyIn(uint32_t copy) const;

  void Pin(uint32_t copy);
  void Unpin(uint32_t copy);
  void UnpinAll();
  uint64_t PinnedBytes(SpaceIndex space) const;
  void UpdateNextUse(uint32_t copy);
  // The copies that must leave for so many bytes to fit; an `end` of 0: nothing can.
  Window BestWindow(SpaceIndex space, uint64_t bytes);
  uint32_t Lowest(SpaceIndex space) const {  // The copy that can be evicted, by its place; kNone: there is none.
    return residents_[space].by_offset.empty() ? kNone : residents_[space].by_offset.begin()->second;
  }

 private:
  // What a space with a budget holds.
  struct Residents {
    bool has_budget = false;
    SpaceIndex overflow = SpaceFacts::kNone;
    std::map<uint64_t, uint32_t> by_offset;               // Copies.
    std::set<std::pair<uint32_t, uint32_t>> by_next_use;  // (Copy::next_use, copy).
    // The group that is worked on there, and the two before it.
    std::array<uint32_t, 3> groups{kNone, kNone, kNone};
  };
  void NoteResident(uint32_t copy);
  void ForgetResident(uint32_t copy);
  uint32_t NextUse(graph::FlatValueId value, SpaceIndex space);
  Window WindowAt(SpaceIndex space, uint32_t copy, uint64_t bytes);
  bool MayEvict(uint32_t copy);
  bool IsRecent(uint32_t copy, bool is_written_back) const;

  const Uses& uses_;
  const std::vector<Storage>& storages_;
  std::vector<Arena> arenas_;         // By space.
  std::vector<Residents> residents_;  // By space.
  bool has_budgets_ = false;
  std::vector<uint32_t> next_value_use_;  // By value: in Uses::value_uses, the first that is not over.
  std::vector<uint32_t> pins_;
  uint32_t group_ = 0;
  std::deque<Copy> copies_;
  std::vector<uint32_t> free_copies_;
  std::vector<uint32_t> first_copy_;  // By value.
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_COPY_TABLE_H_
