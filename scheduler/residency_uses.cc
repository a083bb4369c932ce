// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency_uses.h"

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

// Follows in-place updates back from each output, so that the first value of the chain is already made in the output's
// memory.
void FindOutputChains(const ResidencyInput& input, Uses& uses) {
  const FlatGraph& flat = input.flat;
  uses.chain_output.assign(flat.values.size(), kNoOutput);
  for (uint32_t k = 0; k < flat.outputs.size(); ++k) {
    if (flat.outputs[k].valid() && uses.chain_output[flat.outputs[k].index] == kNoOutput) {
      uses.chain_output[flat.outputs[k].index] = k;
    }
  }
  for (uint32_t group = static_cast<uint32_t>(uses.groups.size()); group-- > 0;) {
    const FlatNodeId node = input.tasks[uses.groups[group].first_task].node;
    const auto [begin, end] = PortsOf(flat, node);
    for (uint32_t port = begin; port < end; ++port) {
      const FlatPort& p = flat.ports[port];
      if (p.in.valid() && p.out.valid() && uses.chain_output[p.out.index] != kNoOutput &&
          uses.chain_output[p.in.index] == kNoOutput && IsLastReader(flat, uses, node, group, port)) {
        uses.chain_output[p.in.index] = uses.chain_output[p.out.index];
      }
    }
  }
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

Uses FindUses(const ResidencyInput& input) {
  Uses uses;
  FindGroups(input, uses);
  FindLastUses(input, uses);
  FindOutputChains(input, uses);
  return uses;
}

}  // namespace hpvm::scheduler
