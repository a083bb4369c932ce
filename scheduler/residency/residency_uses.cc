// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency/residency_uses.h"

#include <algorithm>

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatPort;
using graph::FlatValueId;

void FindGroups(const ResidencyInput& input, Uses& uses) {
  for (uint32_t task = 0; task < input.tasks.size(); ++task) {
    if (!uses.groups.empty() && input.tasks[uses.groups.back().first_task].node == input.tasks[task].node) {
      ++uses.groups.back().task_count;
    } else {
      uses.groups.push_back({.first_task = task, .task_count = 1});
    }
  }
}

void FindLastUses(const ResidencyInput& input, Uses& uses) {
  const FlatGraph& flat = input.flat;
  uses.last_use.assign(flat.values.size(), kNoUse);
  for (uint32_t group = 0; group < uses.groups.size(); ++group) {
    const auto [begin, end] = PortsOf(flat, input.tasks[uses.groups[group].first_task].node);
    for (uint32_t port = begin; port < end; ++port) {
      if (flat.ports[port].in.valid()) {
        uses.last_use[flat.ports[port].in.index] = group;
      }
    }
  }
  for (const FlatValueId value : flat.outputs) {
    if (value.valid()) {
      uses.last_use[value.index] = kUseAtEnd;
    }
  }
}

// Calls `visit(value, use)` in the order of groups; each pair once per group.
template <typename F>
void VisitUses(const ResidencyInput& input, const Uses& uses, F visit) {
  std::vector<SpaceIndex> spaces;
  for (uint32_t group = 0; group < uses.groups.size(); ++group) {
    const TaskGroup& g = uses.groups[group];
    spaces.clear();
    for (uint32_t task = g.first_task; task < g.first_task + g.task_count; ++task) {
      const SpaceIndex space = input.devices[input.tasks[task].device].space;
      if (std::find(spaces.begin(), spaces.end(), space) == spaces.end()) {
        spaces.push_back(space);
      }
    }
    const auto [begin, end] = PortsOf(input.flat, input.tasks[g.first_task].node);
    for (uint32_t port = begin; port < end; ++port) {
      for (const SpaceIndex space : spaces) {
        if (input.flat.ports[port].in.valid()) {
          visit(input.flat.ports[port].in, ValueUse{group, space});
        }
      }
    }
  }
}

void FindValueUses(const ResidencyInput& input, Uses& uses) {
  uses.first_value_use.assign(input.flat.values.size() + 1, 0);
  VisitUses(input, uses, [&](FlatValueId value, const ValueUse&) { ++uses.first_value_use[value.index + 1]; });
  for (size_t v = 1; v < uses.first_value_use.size(); ++v) {
    uses.first_value_use[v] += uses.first_value_use[v - 1];
  }
  uses.value_uses.resize(uses.first_value_use.back());
  std::vector<uint32_t> next(uses.first_value_use.begin(), uses.first_value_use.end() - 1);
  VisitUses(input, uses, [&](FlatValueId value, const ValueUse& use) { uses.value_uses[next[value.index]++] = use; });
}

void FindOutputChains(const ResidencyInput& input, Uses& uses) {
  const FlatGraph& flat = input.flat;
  uses.chain_output.assign(flat.values.size(), kNoOutput);
  for (uint32_t k = 0; k < flat.outputs.size(); ++k) {
    // A carried output stays elsewhere until the last iteration.
    const bool is_carried =
        std::any_of(input.carries.begin(), input.carries.end(), [&](const Carry& carry) { return carry.output == k; });
    if (!is_carried && flat.outputs[k].valid() && uses.chain_output[flat.outputs[k].index] == kNoOutput) {
      uses.chain_output[flat.outputs[k].index] = k;
    }
  }
  FollowChains(input, uses, uses.chain_output);
}

}  // namespace

std::pair<uint32_t, uint32_t> PortsOf(const FlatGraph& flat, FlatNodeId node) {
  const uint32_t end = node.index + 1 < flat.nodes.size() ? flat.nodes[node.index + 1].first_port
                                                          : static_cast<uint32_t>(flat.ports.size());
  return {flat.nodes[node.index].first_port, end};
}

bool IsLastReader(const FlatGraph& flat, const Uses& uses, FlatNodeId node, uint32_t group, uint32_t port) {
  const FlatValueId value = flat.ports[port].in;
  if (uses.last_use[value.index] != group) {
    return false;
  }
  const auto [begin, end] = PortsOf(flat, node);
  for (uint32_t other = begin; other < end; ++other) {
    if (other != port && flat.ports[other].in == value) {
      return false;
    }
  }
  return true;
}

void FollowChains(const ResidencyInput& input, const Uses& uses, std::vector<uint32_t>& of_value) {
  const FlatGraph& flat = input.flat;
  for (uint32_t group = static_cast<uint32_t>(uses.groups.size()); group-- > 0;) {
    const FlatNodeId node = input.tasks[uses.groups[group].first_task].node;
    const auto [begin, end] = PortsOf(flat, node);
    for (uint32_t port = begin; port < end; ++port) {
      const FlatPort& p = flat.ports[port];
      if (p.in.valid() && p.out.valid() && of_value[p.out.index] != kNoOutput && of_value[p.in.index] == kNoOutput &&
          IsLastReader(flat, uses, node, group, port)) {
        of_value[p.in.index] = of_value[p.out.index];
      }
    }
  }
}

Uses FindUses(const ResidencyInput& input, bool has_value_uses) {
  Uses uses;
  FindGroups(input, uses);
  FindLastUses(input, uses);
  FindOutputChains(input, uses);
  if (has_value_uses) {
    FindValueUses(input, uses);
  }
  return uses;
}

}  // namespace hpvm::scheduler
