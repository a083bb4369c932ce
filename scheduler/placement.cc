// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement.h"

#include <algorithm>
#include <tuple>

namespace hpvm::scheduler {
namespace {

constexpr Duration kLaunch = std::chrono::microseconds(10);
constexpr Duration kTransferStart = std::chrono::microseconds(10);
constexpr uint64_t kTransferBytesPerNs = 10;

// Where a value was last written, for transfer costs; later readers may have made copies, which only makes the guess
// pessimistic.
using ValueSpaces = std::vector<SpaceIndex>;

Duration TransferCost(const PlacementInput& input, uint32_t node, SpaceIndex space, const ValueSpaces& spaces) {
  const graph::FlatGraph& flat = input.flat;
  const uint32_t end =
      node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
  Duration cost{0};
  for (uint32_t port = flat.nodes[node].first_port; port < end; ++port) {
    const graph::FlatValueId value = flat.ports[port].in;
    if (value.valid() && spaces[value.index] != space) {
      cost += input.costs.Transfer(flat.values[value.index].bytes, spaces[value.index], space);
    }
  }
  return cost;
}

uint64_t Instances(const graph::FlatNode& node) { return node.extent[0] * node.extent[1] * node.extent[2]; }

uint32_t Choose(const PlacementInput& input, uint32_t node, const ValueSpaces& spaces) {
  const std::vector<Candidate>& candidates = input.candidates[input.flat.nodes[node].leaf.index];
  if (candidates.size() == 1) {
    return 0;
  }
  const auto rank = [&](uint32_t i) {
    const Candidate& candidate = candidates[i];
    const DeviceFacts& device = input.devices[candidate.device];
    // A hint outranks the estimate: its author knows more than a constant does.
    return std::tuple(device.tier, candidate.hint,
                      input.costs.Run(input.flat.nodes[node].leaf, device, Instances(input.flat.nodes[node])) +
                          TransferCost(input, node, device.space, spaces),
                      i);
  };
  uint32_t best = 0;
  for (uint32_t i = 1; i < candidates.size(); ++i) {
    if (rank(i) < rank(best)) {
      best = i;
    }
  }
  return best;
}

}  // namespace

Duration ConstantCosts::Run(graph::NodeId leaf, const DeviceFacts& device, uint64_t instances) const { return kLaunch; }

Duration ConstantCosts::Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const {
  return kTransferStart + Duration(static_cast<int64_t>(bytes / kTransferBytesPerNs));
}

StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced) {
  const graph::FlatGraph& flat = input.flat;
  Placement placement;
  placement.choice.resize(flat.nodes.size());
  ValueSpaces spaces(flat.values.size(), kHostSpace);
  for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
    const std::vector<Candidate>& candidates = input.candidates[flat.nodes[node].leaf.index];
    if (candidates.empty()) {
      *unplaced = node;
      return FailedPrecondition("No device can run the node.");
    }
    placement.choice[node] = Choose(input, node, spaces);
    const DeviceFacts& device = input.devices[candidates[placement.choice[node]].device];
    placement.fallback_nodes += device.tier == Tier::kReal ? 0 : 1;
    const uint32_t end =
        node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
    for (uint32_t port = flat.nodes[node].first_port; port < end; ++port) {
      if (flat.ports[port].out.valid()) {
        spaces[flat.ports[port].out.index] = device.space;
      }
    }
  }
  return placement;
}

}  // namespace hpvm::scheduler
