// SPDX-License-Identifier: Apache-2.0
// Which steps must come before which: two conflict when one writes bytes that the other reads or writes.
//
// For every range of bytes the last writer and the readers since are known; that is all a new access must wait for, as
// the others come before these. Near-linear in the number of accesses, whatever their ranges are.
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

// Last accesses of the bytes of several memories. Steps must come with growing numbers.
class ConflictMap {
 public:
  // Only the latest of several readers with the same group counts: 0 for every step keeps none but the last. Null:
  // every reader counts.
  explicit ConflictMap(const std::vector<uint32_t>* group_of_step = nullptr) : group_of_step_(group_of_step) {}

  // Notes the access, and appends the steps that must come before it to `earlier`; with repetitions.
  void Access(uint64_t memory, ByteRange range, bool writes, uint32_t step, std::vector<uint32_t>& earlier);

 private:
  struct Entry {
    uint64_t end = 0;
    uint32_t writer = 0xffffffffu;
    std::vector<uint32_t> readers;
  };
  using Memory = std::map<uint64_t, Entry>;  // By first byte.
  static Memory::iterator Split(Memory& memory, uint64_t at);
  void AddReader(Entry& entry, uint32_t step, std::vector<uint32_t>& earlier);

  const std::vector<uint32_t>* group_of_step_;  // Borrowed.
  std::unordered_map<uint64_t, Memory> memories_;
};

// Where a storage's bytes are: storages of one arena share a memory. For ConflictMap.
struct MemoryRange {
  uint64_t memory = 0;
  ByteRange range;
};
MemoryRange Locate(const Residency& residency, const Touch& touch);

// Steps that must wait for each other in a list of steps, by their position in the list.
struct StepOrder {
  // Successors of step i: successors[first_successor[i]] to successors[first_successor[i + 1] - 1]; all later in the
  // list.
  std::vector<uint32_t> first_successor, successors;
  std::vector<uint32_t> predecessors;  // By step: how many it waits for.
  // All of the work over the longest path, as planned: 1 when the steps form a chain. Where there is no parallelism
  // worth having (below kParallelismMin) the vectors above are empty: the steps are to run one after another.
  double parallelism = 1;
};
inline constexpr double kParallelismMin = 1.05;

// The order within one segment.
StepOrder OrderSteps(const Residency& residency, const Segment& segment, std::span<const Task> tasks);

// How long a step takes, as planned: for weighing one against another.
Duration PlannedTime(const Step& step, std::span<const Task> tasks);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_ORDER_H_
