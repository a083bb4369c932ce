// SPDX-License-Identifier: Apache-2.0
// Finds the last reader of each value in the order of the plan, and the values made in the memory of a graph output
// (part of PlanResidency).
#ifndef HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_USES_H_
#define HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_USES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

inline constexpr uint32_t kNoUse = 0xffffffffu;     // A value without readers.
inline constexpr uint32_t kUseAtEnd = 0xfffffffeu;  // A value that is a graph output.
inline constexpr uint32_t kNoOutput = 0xffffffffu;

// The parts of one node, adjacent in ResidencyInput::tasks.
struct TaskGroup {
  uint32_t first_task = 0, task_count = 0;
};

// A group that reads a value, by tasks in one space.
struct ValueUse {
  uint32_t group = 0;
  SpaceIndex space = kHostSpace;
};

struct Uses {
  std::vector<TaskGroup> groups;
  std::vector<uint32_t> last_use;  // Indexed by value: a group, kUseAtEnd or kNoUse.
  // The uses of value v, in order, are value_uses[first_value_use[v]] to value_uses[first_value_use[v + 1] - 1].
  std::vector<uint32_t> first_value_use;
  std::vector<ValueUse> value_uses;
  std::vector<uint32_t> chain_output;  // Indexed by value: the root's port in whose memory its chain of updates ends.
};

// Returns the first and the end index of a node's ports in FlatGraph::ports.
std::pair<uint32_t, uint32_t> PortsOf(const graph::FlatGraph& flat, graph::FlatNodeId node);

// Returns true when `port` of `node`, which is group `group`, is the only and last reader of its value.
bool IsLastReader(const graph::FlatGraph& flat, const Uses& uses, graph::FlatNodeId node, uint32_t group,
                  uint32_t port);

// Follows in-place updates backwards: the entry of a value is copied to the value that it updates, unless that has an
// entry or is read later. kNoOutput means no entry.
void FollowChains(const ResidencyInput& input, const Uses& uses, std::vector<uint32_t>& of_value);

// `has_value_uses`: value_uses are requested.
Uses FindUses(const ResidencyInput& input, bool has_value_uses);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_USES_H_
