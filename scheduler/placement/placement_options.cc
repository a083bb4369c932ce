// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement/placement_options.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace hpvm::scheduler::placing {
namespace {

// Times are capped at a day.
constexpr int64_t kWorstNs = int64_t{86'400} * 1'000'000'000;
// Number of kinds of one leaf that are compared before a node counts as a kind of its own.
constexpr size_t kKindsMax = 16;

}  // namespace

std::pair<uint32_t, uint32_t> PortsOf(const graph::FlatGraph& flat, uint32_t node) {
  const uint32_t end =
      node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
  return {flat.nodes[node].first_port, end};
}

Resources FindResources(std::span<const DeviceFacts> devices, const CostModel& costs) {
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
  out.first_link = static_cast<uint32_t>(out.lanes.size());
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
  if (const double speed = costs.HostCopyBytesPerSecond(); speed > 0 && out.lanes.size() > out.first_link) {
    out.host_copies = static_cast<uint32_t>(out.lanes.size());
    out.host_ns_per_byte = 1e9 / speed;
    out.lanes.push_back(1);
    for (SpaceIndex space = 0; space < out.spaces; ++space) {
      out.host_part.push_back(static_cast<uint32_t>(out.lanes.size()));
      out.lanes.push_back(1);
    }
  }
  return out;
}

Options::Options(const PlacementInput& input, const Resources& resources)
    : input_(input),
      resources_(resources),
      port_work_(input.flat),
      works_(input.works == nullptr ? static_cast<const WorkModel&>(port_work_) : *input.works) {
  const size_t terms = input.flat.nodes.size() + input.flat.ports.size() + input.flat.outputs.size() + 16;
  worst_ns_ = std::min(kWorstNs, kForever / 8 / static_cast<int64_t>(terms));
}

bool Options::Find(uint32_t* unplaced) {
  const graph::FlatGraph& flat = input_.flat;
  set_of_.resize(flat.nodes.size());
  of_leaf_.resize(input_.candidates.size());
  size_t next_pin = 0;
  for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
    uint32_t set = input_.pins.empty() ? kNone : FindPin(node, &next_pin);
    if (set == kNone) {
      set = FindLike(node);
    }
    if (set == kNone) {
      *unplaced = node;
      return false;
    }
    set_of_[node] = set;
    fallback_nodes_ += is_fallback_[set] ? 1 : 0;
  }
  only_device_ = all_[0].device;
  for (const Option& option : all_) {
    only_device_ = option.device == only_device_ ? only_device_ : kNone;
  }
  return true;
}

uint32_t Options::FindPin(uint32_t node, size_t* next) {
  while (*next < input_.pins.size() && input_.pins[*next].node.index < node) {
    ++*next;
  }
  if (*next == input_.pins.size() || input_.pins[*next].node.index != node) {
    return kNone;
  }
  const uint32_t choice = input_.pins[*next].choice;
  const std::vector<Candidate>& candidates = input_.candidates[input_.flat.nodes[node].leaf.index];
  return choice < candidates.size() && CanRun(node, candidates[choice]) ? Make(node, {&choice, 1}) : kNone;
}

uint32_t Options::FindLike(uint32_t node) {
  auto& kinds = of_leaf_[input_.flat.nodes[node].leaf.index];
  for (const auto& [like, set] : kinds) {
    if (IsLike(node, like)) {
      return set;
    }
  }
  const std::vector<uint32_t> kept = Keep(node);
  if (kept.empty()) {
    return kNone;
  }
  const uint32_t set = Make(node, kept);
  if (kinds.size() < kKindsMax) {
    kinds.emplace_back(node, set);
  } else {
    kinds[node % kKindsMax] = {node, set};
  }
  return set;
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
  if (input_.works != nullptr) {
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

// Returns candidates in order of preference: those of the best tier and, among these, of the best hint.
std::vector<uint32_t> Options::Keep(uint32_t node) const {
  const std::vector<Candidate>& candidates = input_.candidates[input_.flat.nodes[node].leaf.index];
  // A hint outranks the estimate, because its author knows more than a constant does. Tiers outrank both.
  const auto rank = [&](const Candidate& c) { return std::tuple(input_.devices[c.device].tier, c.hint); };
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < candidates.size(); ++i) {
    if (!CanRun(node, candidates[i])) {
      continue;
    }
    if (!kept.empty() && rank(candidates[i]) < rank(candidates[kept[0]])) {
      kept.clear();
    }
    if (kept.empty() || rank(candidates[i]) == rank(candidates[kept[0]])) {
      kept.push_back(i);
    }
  }
  return kept;
}

uint32_t Options::Make(uint32_t node, std::span<const uint32_t> kept) {
  const graph::FlatNode& n = input_.flat.nodes[node];
  const std::vector<Candidate>& candidates = input_.candidates[n.leaf.index];
  OptionSet set{.first = static_cast<uint32_t>(all_.size())};
  for (const uint32_t i : kept) {
    const Option option = Price(node, i, candidates[i].device, {.count = n.extent});
    // Only the fastest of several variants for one device is kept.
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

Option Options::Price(uint32_t node, uint32_t choice, DeviceIndex device, const Box& box) const {
  const Work work = works_.Of(graph::FlatNodeId(node), choice, box);
  const DeviceFacts& facts = input_.devices[device];
  const Cost cost = input_.costs.Run(work, device, facts);
  Option option{.choice = choice,
                .device = device,
                .silicon = resources_.of_device[device],
                .space = facts.space,
                .is_estimate = cost.is_estimate,
                .is_guess = cost.is_guess};
  const int64_t ns = std::clamp<int64_t>(cost.time.count(), 1, worst_ns_);
  if (facts.lanes <= 1) {
    option.all_ns = ns;
    return option;
  }
  const uint64_t instances = std::max<uint64_t>(work.instances, 1);
  const int64_t width = static_cast<int64_t>(std::min<uint64_t>(facts.lanes, instances));
  if (width == 1 || ns < kSharedNs) {
    option.lane_ns = ns;
    return option;
  }
  const int64_t launch_ns = std::min(static_cast<int64_t>(std::clamp(facts.launch_ns, 0.0, 1e9)), ns);
  option.all_ns = ns;
  option.lane_ns = std::min<int64_t>(launch_ns + (ns - launch_ns) * width, worst_ns_);
  return option;
}

OptionSet Options::Add(const Option& option) {
  all_.push_back(option);
  return {static_cast<uint32_t>(all_.size()) - 1, 1};
}

}  // namespace hpvm::scheduler::placing
