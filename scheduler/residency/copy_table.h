// SPDX-License-Identifier: Apache-2.0
// CopyTable, a part of PlanResidency: records which bytes of which value are where, which memory is free, and which
// copies to evict.
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
    uint32_t next = kNone;  // The next copy of the same value.
    SpaceIndex space = kHostSpace;
    StorageId storage{};
    bool is_temporary = false;
    bool is_writable = false;
    bool is_window = false;  // Its storage holds only a part of the value (Storage::first); no launch uses it.
    bool is_pinned = false;  // The current task uses it.
    graph::FlatValueId value{};
    uint32_t next_use = 0;      // If it can be evicted: the next group that needs it.
    uint32_t last_use = kNone;  // The last group that used it.
    DeviceIndex device = 0;     // The device that wrote to it last.
    Duration until{0};          // Planned end of its last user.
    RangeSet valid{};
  };

  // Copies that are adjacent, with free memory between them.
  struct Window {
    std::vector<uint32_t> copies;
    uint64_t begin = 0, end = 0;
    uint32_t next_use = 0xffffffffu;  // The earliest of its copies' next uses.
    uint64_t traffic = 0;             // Bytes to be moved out, and back in later.
    // Evicting it means waiting, because tasks that use it may still run then.
    bool is_recent = false;
  };

  // `reserved`: by space, the number of bytes not to be used. `storages` and `uses` are borrowed; BeginUses must be
  // called once `uses` is filled.
  CopyTable(const ResidencyInput& input, const std::vector<uint64_t>& reserved, SpaceIndex spaces,
            const std::vector<Storage>& storages, const Uses& uses);
  void BeginUses();
  void BeginGroup(uint32_t group) { group_ = group; }  // Sets the current group,
  void NoteWork(SpaceIndex space);                     // and the space in which it works.
  bool has_budgets() const { return has_budgets_; }
  bool HasBudget(SpaceIndex space) const { return residents_[space].has_budget; }
  SpaceIndex OverflowOf(SpaceIndex space) const { return residents_[space].overflow; }
  Arena& arena(SpaceIndex space) { return arenas_[space]; }
  const Arena& arena(SpaceIndex space) const { return arenas_[space]; }

  // The copies of a value form a list: First, Copy::next.
  uint32_t First(graph::FlatValueId value) const { return first_copy_[value.index]; }
  Copy& operator[](uint32_t copy) { return copies_[copy]; }
  const Copy& operator[](uint32_t copy) const { return copies_[copy]; }
  uint32_t Add(graph::FlatValueId value, Copy copy);
  void Drop(graph::FlatValueId value, uint32_t copy);
  void DropValue(graph::FlatValueId value);
  void PassOn(graph::FlatValueId from, graph::FlatValueId to);  // `to` has no copies.
  bool IsIn(graph::FlatValueId value, StorageId storage) const;
  bool IsInUse(StorageId storage) const;
  RangeSet OnlyIn(uint32_t copy) const;

  void Pin(uint32_t copy);
  void Unpin(uint32_t copy);
  void UnpinAll();
  uint64_t PinnedBytes(SpaceIndex space) const;
  void UpdateNextUse(uint32_t copy);
  // Returns the copies that must leave for `bytes` to fit; `end` is 0 when no set of copies suffices.
  Window BestWindow(SpaceIndex space, uint64_t bytes);
  // Returns the evictable copy with the lowest offset; kNone when there is none.
  uint32_t Lowest(SpaceIndex space) const {
    return residents_[space].by_offset.empty() ? kNone : residents_[space].by_offset.begin()->second;
  }

 private:
  // Copies in a space with a budget.
  struct Residents {
    bool has_budget = false;
    SpaceIndex overflow = SpaceFacts::kNone;
    std::map<uint64_t, uint32_t> by_offset;               // Copies.
    std::set<std::pair<uint32_t, uint32_t>> by_next_use;  // (Copy::next_use, copy).
    // The current group in that space, and the two before it.
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
  std::vector<Arena> arenas_;         // Indexed by space.
  std::vector<Residents> residents_;  // Indexed by space.
  bool has_budgets_ = false;
  // Indexed by value: index in Uses::value_uses of the first use that is not over.
  std::vector<uint32_t> next_value_use_;
  std::vector<uint32_t> pins_;
  uint32_t group_ = 0;
  std::deque<Copy> copies_;
  std::vector<uint32_t> free_copies_;
  std::vector<uint32_t> first_copy_;  // Indexed by value.
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_COPY_TABLE_H_
