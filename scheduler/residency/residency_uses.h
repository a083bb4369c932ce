// SPDX-License-Identifier: Apache-2.0
// Of PlanResidency: who reads each value last, in the order of the plan, and which values are made in the memory of a
// graph output.
#ifndef HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_USES_H_
#define HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_USES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

inline constexpr uint32_t kNoUse = 0xffffffffu;     // A value that nobody reads.
inline constexpr uint32_t kUseAtEnd = 0xfffffffeu;  // A value that is a graph output.
inline constexpr uint32_t kNoOutput = 0xffffffffu;

// The parts of one node, side by side in ResidencyInput::tasks.
struct TaskGroup {
  uint32_t first_task = 0, task_count = 0;
};

// A group that reads a value by tasks in a space.
struct ValueUse {
  uint32_t group = 0;
  SpaceIndex space = kHostSpace;
};

struct Uses {
  std::vector<TaskGroup> groups;
  std::vector<uint32_t> last_use;  // By value: a group, kUseAtEnd or kNoUse.
  // Of value v, in order: value_uses[first_value_use[v]] to value_uses[first_value_use[v + 1] - 1].
  std::vector<uint32_t> first_value_use;
  std::vector<ValueUse> value_uses;
  std::vector<uint32_t> chain_output;  // By value: the root's port in whose memory its chain of updates ends.
};

// First and end of a node's ports in FlatGraph::ports.
std::pair<uint32_t, uint32_t> PortsOf(const graph::FlatGraph& flat, graph::FlatNodeId node);

// Whether `port` of `node`, which is group `group`, is the only and last reader of its value.
bool IsLastReader(const graph::FlatGraph& flat, const Uses& uses, graph::FlatNodeId node, uint32_t group,
                  uint32_t port);

// Follows in-place updates back: what a value has, the one that it updates has, too, unless it has something or is
// read later. None: kNoOutput.
void FollowChains(const ResidencyInput& input, const Uses& uses, std::vector<uint32_t>& of_value);

// `has_value_uses`: value_uses are wanted.
Uses FindUses(const ResidencyInput& input, bool has_value_uses);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_USES_H_
