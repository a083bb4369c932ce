// SPDX-License-Identifier: Apache-2.0
// Determines which steps must precede others: two steps conflict when one writes bytes that the other reads or writes.
//
// For every range of bytes the last writer and the readers since then are recorded; a new access must wait only for
// these, as all others come before them. Near-linear in the number of accesses, whatever their ranges are.
#ifndef HPVMD_SCHEDULER_RESIDENCY_ORDER_H_
#define HPVMD_SCHEDULER_RESIDENCY_ORDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/residency/residency.h"
#include "scheduler/task.h"

namespace hpvm::scheduler {

// ConflictMap records the last accesses to the bytes of several memories. Steps must be passed in increasing order.
class ConflictMap {
 public:
  // Only the latest of several readers with the same group counts: with 0 for every step only the last reader is kept.
  // Null: every reader counts.
  explicit ConflictMap(const std::vector<uint32_t>* group_of_step = nullptr) : group_of_step_(group_of_step) {}

  // Records the access, and appends to `earlier` the steps that must come before it; may contain duplicates.
  void Access(uint64_t memory, ByteRange range, bool writes, uint32_t step, std::vector<uint32_t>& earlier);

 private:
  struct Entry {
    uint64_t end = 0;
    uint32_t writer = 0xffffffffu;
    std::vector<uint32_t> readers;
  };
  using Memory = std::map<uint64_t, Entry>;  // Keyed by first byte.
  static Memory::iterator Split(Memory& memory, uint64_t at);
  void AddReader(Entry& entry, uint32_t step, std::vector<uint32_t>& earlier);

  const std::vector<uint32_t>* group_of_step_;  // Borrowed.
  std::unordered_map<uint64_t, Memory> memories_;
};

// Location of a storage's bytes, for ConflictMap: storages of one arena share a memory.
struct MemoryRange {
  uint64_t memory = 0;
  ByteRange range;
};
MemoryRange Locate(const Residency& residency, const Touch& touch);

// Dependencies between the steps of a list, by position in the list.
struct StepOrder {
  // The successors of step i, all later in the list, are successors[first_successor[i]] to
  // successors[first_successor[i + 1] - 1].
  std::vector<uint32_t> first_successor, successors;
  std::vector<uint32_t> predecessors;  // Indexed by step: number of steps it waits for.
  // Total planned work divided by the longest path: 1 when the steps form a chain. When it is below kParallelismMin,
  // the vectors above are empty: the steps run one after another.
  double parallelism = 1;
};
inline constexpr double kParallelismMin = 1.05;

// Returns the order within one segment.
StepOrder OrderSteps(const Residency& residency, const Segment& segment, std::span<const Task> tasks);

// Returns the planned time of a step, for comparing steps.
Duration PlannedTime(const Step& step, std::span<const Task> tasks);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_ORDER_H_
