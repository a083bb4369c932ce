// SPDX-License-Identifier: Apache-2.0
#include "server/process/processors.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace hpvm::server {
namespace {

constexpr uint32_t kProcessorsMax = 4'096;

class Topology {
 public:
  ~Topology() {
    if (is_made_) {
      hwloc_topology_destroy(topology_);
    }
  }
  Status Load(const char* synthetic) {
    is_made_ = hwloc_topology_init(&topology_) == 0;
    if (!is_made_ || (synthetic != nullptr && hwloc_topology_set_synthetic(topology_, synthetic) != 0) ||
        hwloc_topology_load(topology_) != 0) {
      return Unavailable("hwloc cannot read the machine's processors.");
    }
    return absl::OkStatus();
  }
  hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
  bool is_made_ = false;
};

std::optional<uint32_t> NumberOf(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && number < kProcessorsMax ? std::optional(number) : std::nullopt;
}

// Parses "0-1,4"; returns nothing when the text is not a list.
std::optional<std::set<uint32_t>> ListOf(std::string_view text) {
  std::set<uint32_t> numbers;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t dash = part.find('-');
    const std::optional<uint32_t> first = NumberOf(part.substr(0, dash));
    const std::optional<uint32_t> last = dash == std::string_view::npos ? first : NumberOf(part.substr(dash + 1));
    if (!first.has_value() || !last.has_value() || *last < *first) {
      return std::nullopt;
    }
    for (uint32_t number = *first; number <= *last; ++number) {
      numbers.insert(number);
    }
    if (comma == std::string_view::npos) {
      return numbers;
    }
    text.remove_prefix(comma + 1);
  }
}

std::string TextOf(const std::vector<uint32_t>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) {
      ++end;
    }
    text +=
        (text.empty() ? "" : ",") + std::to_string(cpus[i]) + (end > i + 1 ? "-" + std::to_string(cpus[end - 1]) : "");
    i = end;
  }
  return text;
}

// Returns the hardware threads of the first cores, or the named ones.
std::set<uint32_t> ReservedOf(const std::vector<Processor>& processors, std::string_view reserved) {
  const std::optional<uint32_t> count = NumberOf(reserved);
  if (!count.has_value()) {
    return ListOf(reserved).value_or(std::set<uint32_t>());
  }
  std::set<uint32_t> cores, numbers;
  for (const Processor& processor : processors) {
    if (cores.contains(processor.core) || cores.size() < *count) {
      cores.insert(processor.core);
      numbers.insert(processor.number);
    }
  }
  return numbers;
}

}  // namespace

StatusOr<std::vector<Processor>> ReadProcessors(const char* synthetic) {
  Topology topology;
  HPVMD_RETURN_IF_ERROR(topology.Load(synthetic));
  cpu_set_t affinity;
  const bool is_real = synthetic == nullptr && sched_getaffinity(0, sizeof affinity, &affinity) == 0;
  const hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology.get());
  std::vector<Processor> processors;
  for (hwloc_obj_t unit = nullptr;
       (unit = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PU, unit)) != nullptr;) {
    const uint32_t number = unit->os_index;
    if (number >= kProcessorsMax || hwloc_bitmap_isset(allowed, number) == 0 ||
        (is_real && (number >= CPU_SETSIZE || !CPU_ISSET(number, &affinity)))) {
      continue;
    }
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology.get(), HWLOC_OBJ_CORE, unit);
    const int node = hwloc_bitmap_first(unit->nodeset);
    processors.push_back(
        {number, core == nullptr ? number : core->logical_index, node < 0 ? 0 : static_cast<uint32_t>(node)});
  }
  std::sort(processors.begin(), processors.end(),
            [](const Processor& a, const Processor& b) { return a.number < b.number; });
  if (processors.empty()) {
    return Unavailable("hwloc finds no processor that this process may use.");
  }
  return processors;
}

Status CheckReservedCores(std::string_view text) {
  if (NumberOf(text).has_value() || ListOf(text).has_value()) {
    return absl::OkStatus();
  }
  return InvalidArgument("\"" + std::string(text.substr(0, 80)) +
                         "\" is neither a number of cores (2) nor a list of processors (0-1,4; 3-3 for one).");
}

StatusOr<std::unique_ptr<CpuPartition>> CpuPartition::Make(const std::vector<Processor>& processors,
                                                           std::string_view reserved, bool by_node, uint32_t threads) {
  HPVMD_RETURN_IF_ERROR(CheckReservedCores(reserved));
  const std::set<uint32_t> kept = ReservedOf(processors, reserved);
  std::vector<uint32_t> all;
  std::map<uint32_t, std::vector<uint32_t>> nodes;
  for (const Processor& processor : processors) {
    if (!kept.contains(processor.number)) {
      all.push_back(processor.number);
      nodes[processor.node].push_back(processor.number);
    }
  }
  if (all.empty()) {
    return InvalidArgument("cpu.reserved_cores (" + std::string(reserved) + ") leaves executors none of the " +
                           std::to_string(processors.size()) + " processors.");
  }
  // Without a number of threads an executor has as many as its node has processors.
  const auto is_too_small = [&](const auto& node) { return node.second.size() < threads; };
  std::erase_if(nodes, is_too_small);
  std::unique_ptr<CpuPartition> plan(new CpuPartition());
  if (by_node && nodes.size() > 1) {
    for (auto& [number, cpus] : nodes) {
      plan->threads_max_ = std::max(plan->threads_max_, static_cast<uint32_t>(cpus.size()));
      plan->cpus_.push_back(std::move(cpus));
    }
  } else {
    plan->threads_max_ = static_cast<uint32_t>(all.size());
    plan->cpus_.push_back(all.size() == processors.size() ? std::vector<uint32_t>() : all);
  }
  plan->taken_.resize(plan->cpus_.size());
  if (all.size() < processors.size() || plan->cpus_.size() > 1) {
    plan->text_ = "processors " + TextOf(all) + " of " + std::to_string(processors.size());
  }
  if (plan->cpus_.size() > 1) {
    plan->text_ += ", each executor on one of " + std::to_string(plan->cpus_.size()) + " nodes";
  }
  return plan;
}

std::unique_ptr<CpuPartition::Share> CpuPartition::Take() {
  std::lock_guard lock(mutex_);
  size_t best = 0;
  for (size_t node = 1; node < taken_.size(); ++node) {
    if (taken_[node] * cpus_[best].size() < taken_[best] * cpus_[node].size()) {
      best = node;
    }
  }
  ++taken_[best];
  return std::make_unique<Share>(*this, best);
}

void CpuPartition::GiveBack(size_t node) {
  std::lock_guard lock(mutex_);
  --taken_[node];
}

}  // namespace hpvm::server
