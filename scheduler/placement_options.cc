// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement_options.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace hpvm::scheduler::placing {
namespace {

// A day is worse than anything.
constexpr int64_t kWorstNs = int64_t{86'400} * 1'000'000'000;
// How many kinds of one leaf are looked through before a node counts as a kind of its own.
constexpr size_t kKindsMax = 16;

}  // namespace

std::pair<uint32_t, uint32_t> PortsOf(const graph::FlatGraph& flat, uint32_t node) {
  const uint32_t end =
      node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
  return {flat.nodes[node].first_port, end};
}

uint64_t InstancesOf(const Box& box) { return box.count[0] * box.count[1] * box.count[2]; }

Resources FindResources(std::span<const DeviceFacts> devices) {
  Resources out;
  std::map<uint32_t, uint32_t> silicons;
  for (const DeviceFacts& device : devices) {
    const auto [at, is_new] = silicons.try_emplace(device.silicon, static_cast<uint32_t>(out.lanes.size()));
    if (is_new) {
      out.lanes.push_back(1);
    }
    out.lanes[at->second] = std::max(out.lanes[at->second], device.lanes);
    out.of_device.push_back(at->second);
    out.spaces = std::max(out.spaces, device.space + 1);
  }
  out.up.assign(out.spaces, kNone);
  out.down.assign(out.spaces, kNone);
  for (size_t i = 0; i < devices.size(); ++i) {
    const SpaceIndex space = devices[i].space;
    if (space == kHostSpace || out.up[space] != kNone) {
      continue;
    }
    if (devices[i].has_copy_lanes) {
      out.up[space] = static_cast<uint32_t>(out.lanes.size());
      out.down[space] = out.up[space] + 1;
      out.lanes.insert(out.lanes.end(), 2, 1);
    } else {
      out.up[space] = out.down[space] = out.of_device[i];
    }
  }
  return out;
}

Options::Options(const PlacementInput& input, const Resources& resources)
    : input_(input),
      resources_(resources),
      worst_ns_(std::min(kWorstNs, kForever / 8 / static_cast<int64_t>(input.flat.nodes.size() + input.flat.ports.size() +
                                                                       input.flat.outputs.size() + 16))) {}

bool Options::Find(uint32_t* unplaced) {
  const graph::FlatGraph& flat = input_.flat;
  set_of_.resize(flat.nodes.size());
  of_leaf_.resize(input_.candidates.size());
  bool has_several = false;
  for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
    auto& kinds = of_leaf_[flat.nodes[node].leaf.index];
    uint32_t set = kNone;
    for (const auto& [like, its_set] : kinds) {
      if (IsLike(node, like)) {
        set = its_set;
        break;
      }
    }
    if (set == kNone) {
      set = Make(node);
      if (set == kNone) {
        *unplaced = node;
        return false;
      }
      for (const Option& option : List(sets_[set])) {
        has_several = has_several || (only_device_ != kNone && only_device_ != option.device);
        only_device_ = option.device;
      }
      if (kinds.size() < kKindsMax) {
        kinds.emplace_back(node, set);
      } else {
        kinds[node % kKindsMax] = {node, set};
      }
    }
    set_of_[node] = set;
    fallback_nodes_ += is_fallback_[set] ? 1 : 0;
  }
  only_device_ = has_several ? kNone : only_device_;
  return true;
}

bool Options::IsLike(uint32_t a, uint32_t b) const {
  const graph::FlatGraph& flat = input_.flat;
  const graph::FlatNode& x = flat.nodes[a];
  const graph::FlatNode& y = flat.nodes[b];
  if (x.leaf != y.leaf || x.extent != y.extent || x.group != y.group) {
    return false;
  }
  const auto [first, end] = PortsOf(flat, a);
  const auto bytes = [&](uint32_t port) {
    const graph::FlatPort& p = flat.ports[port];
    return flat.values[(p.out.valid() ? p.out : p.in).index].bytes;
  };
  for (uint32_t port = first; port < end; ++port) {
    if (bytes(port) != bytes(y.first_port + port - first)) {
      return false;
    }
  }
  if (input_.operations) {
    const uint32_t scalars_end =
        a + 1 < flat.nodes.size() ? flat.nodes[a + 1].first_scalar : static_cast<uint32_t>(flat.scalars.size());
    for (uint32_t s = x.first_scalar; s < scalars_end; ++s) {
      if (flat.scalars[s].bits != flat.scalars[y.first_scalar + s - x.first_scalar].bits) {
        return false;
      }
    }
  }
  return true;
}

uint32_t Options::Make(uint32_t node) {
  const graph::FlatGraph& flat = input_.flat;
  const graph::FlatNode& n = flat.nodes[node];
  const std::vector<Candidate>& candidates = input_.candidates[n.leaf.index];
  // A hint outranks the estimate: its author knows more than a constant does. Tiers outrank both.
  const auto rank = [&](const Candidate& c) { return std::tuple(input_.devices[c.device].tier, c.hint); };
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < candidates.size(); ++i) {
    if (input_.can_run && !input_.can_run(node, candidates[i])) {
      continue;
    }
    if (!kept.empty() && rank(candidates[i]) < rank(candidates[kept[0]])) {
      kept.clear();
    }
    if (kept.empty() || rank(candidates[i]) == rank(candidates[kept[0]])) {
      kept.push_back(i);
    }
  }
  if (kept.empty()) {
    return kNone;
  }
  const Box box{.count = n.extent};
  Work work{.leaf = n.leaf, .instances = InstancesOf(box)};
  const auto [begin, end] = PortsOf(flat, node);
  for (uint32_t port = begin; port < end; ++port) {
    const graph::FlatPort& p = flat.ports[port];
    const uint64_t bytes = flat.values[(p.out.valid() ? p.out : p.in).index].bytes;
    work.bytes = bytes > ~uint64_t{0} - work.bytes ? ~uint64_t{0} : work.bytes + bytes;
  }
  OptionSet set{.first = static_cast<uint32_t>(all_.size())};
  for (const uint32_t i : kept) {
    work.choice = i;
    work.operations = input_.operations ? input_.operations(graph::FlatNodeId(node), i, box) : 0;
    const Option option = Price(work, candidates[i].device);
    // Of several variants for one device the quickest stays.
    const auto same = std::find_if(all_.begin() + set.first, all_.end(),
                                   [&](const Option& other) { return other.device == option.device; });
    if (same == all_.end()) {
      all_.push_back(option);
    } else if (option.best_ns() < same->best_ns()) {
      *same = option;
    }
  }
  set.count = static_cast<uint32_t>(all_.size()) - set.first;
  sets_.push_back(set);
  is_fallback_.push_back(input_.devices[candidates[kept[0]].device].tier != Tier::kReal);
  return static_cast<uint32_t>(sets_.size()) - 1;
}

Option Options::Price(const Work& work, DeviceIndex device) const {
  const DeviceFacts& facts = input_.devices[device];
  const Cost cost = input_.costs.Run(work, device, facts);
  Option option{.choice = work.choice,
                .device = device,
                .silicon = resources_.of_device[device],
                .space = facts.space,
                .is_estimate = cost.is_estimate};
  const int64_t ns = std::clamp<int64_t>(cost.time.count(), 1, worst_ns_);
  if (facts.lanes <= 1) {
    option.all_ns = ns;
    return option;
  }
  const int64_t width = static_cast<int64_t>(std::min<uint64_t>(facts.lanes, std::max<uint64_t>(work.instances, 1)));
  if (width == 1 || ns < kSharedNs) {
    option.lane_ns = ns;
    return option;
  }
  const int64_t launch_ns = std::min(static_cast<int64_t>(std::clamp(facts.launch_ns, 0.0, 1e9)), ns);
  option.all_ns = ns;
  option.lane_ns = std::min<int64_t>(launch_ns + (ns - launch_ns) * width, worst_ns_);
  return option;
}

Option Options::Part(uint32_t node, const Option& option, const Box& box, uint64_t bytes) const {
  Work work{.leaf = input_.flat.nodes[node].leaf, .choice = option.choice, .instances = InstancesOf(box), .bytes = bytes};
  work.operations = input_.operations ? input_.operations(graph::FlatNodeId(node), option.choice, box) : 0;
  return Price(work, option.device);
}

OptionSet Options::Add(const Option& option) {
  all_.push_back(option);
  return {static_cast<uint32_t>(all_.size()) - 1, 1};
}

}  // namespace hpvm::scheduler::placing
