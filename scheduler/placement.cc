// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hpvm::scheduler {
namespace {

std::pair<uint32_t, uint32_t> Ports(const graph::FlatGraph& flat, uint32_t node) {
  const uint32_t end =
      node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
  return {flat.nodes[node].first_port, end};
}

class Placer {
 public:
  explicit Placer(const PlacementInput& input)
      : input_(input), flat_(input.flat), spaces_(flat_.values.size(), kHostSpace), is_output_(flat_.values.size()) {
    for (const graph::FlatValueId value : flat_.outputs) {
      if (value.valid()) {
        is_output_[value.index] = true;
      }
    }
  }

  // kNone where no candidate can run the node.
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t Choose(uint32_t node) const {
    const std::vector<Candidate>& candidates = Candidates(node);
    uint32_t best = kNone;
    for (uint32_t i = 0; i < candidates.size(); ++i) {
      if ((!input_.can_run || input_.can_run(node, candidates[i])) &&
          (best == kNone || (candidates.size() > 1 && Rank(node, i) < Rank(node, best)))) {
        best = i;
      }
    }
    return best;
  }

  const DeviceFacts& Take(uint32_t node, uint32_t choice) {
    const DeviceFacts& device = input_.devices[Candidates(node)[choice].device];
    const auto [begin, end] = Ports(flat_, node);
    for (uint32_t port = begin; port < end; ++port) {
      if (flat_.ports[port].out.valid()) {
        spaces_[flat_.ports[port].out.index] = device.space;
      }
    }
    return device;
  }

 private:
  const std::vector<Candidate>& Candidates(uint32_t node) const {
    return input_.candidates[flat_.nodes[node].leaf.index];
  }

  std::tuple<Tier, uint32_t, Duration, uint32_t> Rank(uint32_t node, uint32_t i) const {
    const Candidate& candidate = Candidates(node)[i];
    const DeviceFacts& device = input_.devices[candidate.device];
    // A hint outranks the estimate: its author knows more than a constant does.
    return {device.tier, candidate.hint, input_.costs.Run(WorkOf(node, i), candidate.device, device).time + TransferCost(node, device.space), i};
  }

  Work WorkOf(uint32_t node, uint32_t choice) const {
    const graph::FlatNode& n = flat_.nodes[node];
    Work work{.leaf = n.leaf, .choice = choice, .instances = n.extent[0] * n.extent[1] * n.extent[2]};
    const auto [begin, end] = Ports(flat_, node);
    for (uint32_t port = begin; port < end; ++port) {
      const graph::FlatPort& p = flat_.ports[port];
      const uint64_t bytes = flat_.values[(p.out.valid() ? p.out : p.in).index].bytes;
      work.bytes = bytes > ~uint64_t{0} - work.bytes ? ~uint64_t{0} : work.bytes + bytes;
    }
    return work;
  }

  Duration TransferCost(uint32_t node, SpaceIndex space) const {
    Duration cost{0};
    const auto [begin, end] = Ports(flat_, node);
    for (uint32_t port = begin; port < end; ++port) {
      const graph::FlatValueId in = flat_.ports[port].in;
      if (in.valid() && spaces_[in.index] != space) {
        cost += input_.costs.Transfer(flat_.values[in.index].bytes, spaces_[in.index], space);
      }
      const graph::FlatValueId out = flat_.ports[port].out;
      if (out.valid() && is_output_[out.index] && space != kHostSpace) {
        cost += input_.costs.Transfer(flat_.values[out.index].bytes, space, kHostSpace);
      }
    }
    return cost;
  }

  const PlacementInput& input_;
  const graph::FlatGraph& flat_;
  // Where a value was last written, for transfer costs; later readers may have made copies, which only makes the guess
  // pessimistic.
  std::vector<SpaceIndex> spaces_;
  std::vector<bool> is_output_;  // By value: the caller gets it, in host memory.
};

}  // namespace

StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced) {
  const graph::FlatGraph& flat = input.flat;
  Placement placement;
  placement.tasks.reserve(flat.nodes.size());
  Placer placer(input);
  for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
    const uint32_t choice = placer.Choose(node);
    if (choice == Placer::kNone) {
      *unplaced = node;
      return FailedPrecondition("No device can run the node.");
    }
    placement.fallback_nodes += placer.Take(node, choice).tier == Tier::kReal ? 0 : 1;
    placement.tasks.push_back({.node = graph::FlatNodeId(node),
                               .choice = choice,
                               .device = input.candidates[flat.nodes[node].leaf.index][choice].device,
                               .box = {.count = flat.nodes[node].extent}});
  }
  return placement;
}

}  // namespace hpvm::scheduler
