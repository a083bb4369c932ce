// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hpvm::scheduler {
namespace {

constexpr Duration kLaunch = std::chrono::microseconds(10);
constexpr Duration kTransferStart = std::chrono::microseconds(10);
constexpr uint64_t kTransferBytesPerNs = 10;

// StaticCosts. A GPU's launch passes a driver's queue; a processor's only wakes threads.
constexpr double kGpuLaunchNs = 10'000;
constexpr double kHostLaunchNs = 1'000;
// One instance on one unit alone: a loop of some tens of steps on a processor's core; a GPU's unit runs hundreds at
// once.
constexpr double kHostInstanceNs = 50;
constexpr double kGpuInstanceNs = 0.25;
// Memory of devices that do not say: a desktop's, and a small GPU's.
constexpr double kHostBytesPerNs = 20;
constexpr double kGpuBytesPerNs = 200;
// PCI Express with memory that is not pinned, and the wait for the copy's end.
constexpr double kLinkStartNs = 20'000;
constexpr double kLinkBytesPerNs = 12;

// Estimates add up without overflow: a day is worse than anything.
Duration FromNs(double ns) { return Duration(static_cast<int64_t>(std::min(ns, 86'400e9))); }

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
    return {device.tier, candidate.hint, input_.costs.Run(WorkOf(node), device) + TransferCost(node, device.space), i};
  }

  Work WorkOf(uint32_t node) const {
    const graph::FlatNode& n = flat_.nodes[node];
    Work work{.leaf = n.leaf, .instances = n.extent[0] * n.extent[1] * n.extent[2]};
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

Duration ConstantCosts::Run(const Work& work, const DeviceFacts& device) const { return kLaunch; }

Duration ConstantCosts::Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const {
  return kTransferStart + Duration(static_cast<int64_t>(bytes / kTransferBytesPerNs));
}

Duration StaticCosts::Run(const Work& work, const DeviceFacts& device) const {
  const double bytes_per_ns =
      device.bytes_per_second > 0 ? device.bytes_per_second / 1e9 : device.is_gpu ? kGpuBytesPerNs : kHostBytesPerNs;
  const double instance_ns = device.is_gpu ? kGpuInstanceNs : kHostInstanceNs;
  const double moving_ns = static_cast<double>(work.bytes) / bytes_per_ns;
  const double running_ns = static_cast<double>(work.instances) * instance_ns / std::max(1u, device.compute_units);
  return FromNs((device.is_gpu ? kGpuLaunchNs : kHostLaunchNs) + std::max(moving_ns, running_ns));
}

Duration StaticCosts::Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const {
  return FromNs(kLinkStartNs + static_cast<double>(bytes) / kLinkBytesPerNs);
}

StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced) {
  const graph::FlatGraph& flat = input.flat;
  Placement placement;
  placement.choice.resize(flat.nodes.size());
  Placer placer(input);
  for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
    placement.choice[node] = placer.Choose(node);
    if (placement.choice[node] == Placer::kNone) {
      *unplaced = node;
      return FailedPrecondition("No device can run the node.");
    }
    placement.fallback_nodes += placer.Take(node, placement.choice[node]).tier == Tier::kReal ? 0 : 1;
  }
  return placement;
}

}  // namespace hpvm::scheduler
