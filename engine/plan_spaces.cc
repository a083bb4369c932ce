// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_spaces.h"

#include <algorithm>
#include <limits>
#include <map>

namespace hpvm::engine {
namespace {

using scheduler::kHostSpace;
using scheduler::kStorageAlignment;
using scheduler::SpaceFacts;
using scheduler::SpaceIndex;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// Drivers reserve some of a device's memory, and report only its total size.
uint64_t MostOf(uint64_t memory_bytes) { return memory_bytes == 0 ? kNoLimit : memory_bytes - memory_bytes / 10; }

uint64_t AddSaturating(uint64_t a, uint64_t b) { return b > kNoLimit - a ? kNoLimit : a + b; }

uint64_t Rounded(uint64_t bytes) {
  return bytes > kNoLimit - kStorageAlignment ? kNoLimit
                                              : (bytes + kStorageAlignment - 1) / kStorageAlignment * kStorageAlignment;
}

// A piece of an arena is one allocation.
void LimitPieces(const DeviceInfo& info, SpaceFacts& space) {
  if (info.allocation_bytes_max != 0) {
    const uint64_t whole = info.allocation_bytes_max / kStorageAlignment * kStorageAlignment;
    space.piece_bytes_max = std::min(space.piece_bytes_max, std::max(whole, kStorageAlignment));
  }
}

void AddDevice(const PreparedGraph& prepared, uint32_t device, Grants grants, PlanSpaces& out) {
  const DeviceInfo& info = prepared.devices[device]->info();
  const SpaceIndex index = prepared.facts[device].space;
  SpaceFacts& space = out.spaces[index];
  LimitPieces(info, space);
  if (index == kHostSpace) {
    // The size of the caller's own tensors is unknown here; they get half, unless the options specify a limit.
    const uint64_t half = info.memory_bytes == 0 ? kNoLimit : info.memory_bytes / 2;
    space.bytes_max = std::min(space.bytes_max, prepared.host_bytes_max != 0 ? prepared.host_bytes_max : half);
    return;
  }
  space.overflow = kHostSpace;
  space.bytes_max = std::min(space.bytes_max, MostOf(info.memory_bytes));
  if (prepared.device_bytes_max != 0) {
    space.bytes_max = std::min(space.bytes_max, prepared.device_bytes_max);
  }
  if (grants == Grants::kHeeded && prepared.memory != nullptr) {
    space.bytes_max = std::min(space.bytes_max, prepared.memory->LimitOf(*prepared.devices[device]));
  }
}

// Drivers of one silicon have one memory, whether or not they share a space. The system limits host memory, whatever
// a driver for the processor reports.
void AddSilicons(const PreparedGraph& prepared, PlanSpaces& out) {
  std::map<std::string, CommonLimit> by_silicon;
  for (size_t i = 0; i < prepared.devices.size(); ++i) {
    const DeviceInfo& info = prepared.devices[i]->info();
    const SpaceIndex space = prepared.facts[i].space;
    if (info.silicon.empty() || space == kHostSpace || info.memory_bytes == 0) {
      continue;
    }
    CommonLimit& common =
        by_silicon.try_emplace(info.silicon, CommonLimit{{}, kNoLimit, "device " + info.id}).first->second;
    common.bytes_max = std::min(common.bytes_max, MostOf(info.memory_bytes));
    if (std::find(common.spaces.begin(), common.spaces.end(), space) == common.spaces.end()) {
      common.spaces.push_back(space);
    }
  }
  for (auto& [silicon, common] : by_silicon) {
    if (common.spaces.size() > 1) {
      out.common.push_back(std::move(common));
    }
  }
}

// Adds the facts of the device that copies to and from the spill file, with a space of its own.
void AddSpill(const PreparedGraph& prepared, PlanSpaces& out) {
  const SpaceIndex disk = static_cast<SpaceIndex>(out.spaces.size());
  const DeviceInfo& info = prepared.spill->info();
  out.devices.push_back({.id = info.id,
                         .space = disk,
                         .bytes_per_second = info.bytes_per_second,
                         .has_copy_lanes = info.has_copy_lanes});
  out.spaces.push_back({.bytes_max = info.memory_bytes, .mover = static_cast<uint32_t>(out.devices.size() - 1)});
  out.spaces[kHostSpace].overflow = disk;
}

// Returns, for each value, whether it may be in the caller's memory: inputs are, and values that become outputs.
std::vector<bool> FindCallersMemory(const graph::FlatGraph& flat) {
  std::vector<bool> is_callers(flat.values.size());
  for (const graph::FlatValueId value : flat.outputs) {
    if (value.valid()) {
      is_callers[value.index] = true;
    }
  }
  for (size_t port = flat.ports.size(); port-- > 0;) {
    const graph::FlatPort& p = flat.ports[port];
    if (p.in.valid() && p.out.valid() && is_callers[p.out.index]) {
      is_callers[p.in.index] = true;
    }
  }
  for (size_t value = 0; value < flat.values.size(); ++value) {
    if (!flat.values[value].producer.valid()) {
      is_callers[value] = true;
    }
  }
  return is_callers;
}

// Returns a lower bound of the bytes of a launch's buffers, each counted once.
uint64_t LeastBytes(const graph::FlatGraph& flat, uint32_t first_port, size_t count,
                    const std::vector<bool>* is_callers) {
  uint64_t bytes = 0;
  for (uint32_t port = first_port; port < first_port + count; ++port) {
    const graph::FlatPort& p = flat.ports[port];
    const graph::FlatValueId value = p.out.valid() ? p.out : p.in;
    bool is_new = is_callers == nullptr || !(*is_callers)[value.index];
    for (uint32_t other = first_port; other < port && is_new; ++other) {
      is_new = p.out.valid() || flat.ports[other].out.valid() || flat.ports[other].in != p.in;
    }
    bytes = is_new ? AddSaturating(bytes, Rounded(flat.values[value.index].bytes)) : bytes;
  }
  return bytes;
}

}  // namespace

PlanSpaces SpacesOf(const PreparedGraph& prepared, Grants grants) {
  PlanSpaces out;
  out.devices = prepared.facts;
  SpaceIndex count = 1;
  for (const scheduler::DeviceFacts& facts : prepared.facts) {
    count = std::max(count, facts.space + 1);
  }
  out.spaces.resize(count);
  for (uint32_t device = static_cast<uint32_t>(prepared.devices.size()); device-- > 0;) {
    out.spaces[prepared.facts[device].space].mover = device;
    AddDevice(prepared, device, grants, out);
  }
  AddSilicons(prepared, out);
  if (grants == Grants::kHeeded && prepared.memory != nullptr && prepared.memory->LimitOfAll() != kNoLimit) {
    CommonLimit all{.spaces = {}, .bytes_max = prepared.memory->LimitOfAll(), .name = "all devices together"};
    for (SpaceIndex space = kHostSpace + 1; space < count; ++space) {
      all.spaces.push_back(space);
    }
    out.common.push_back(std::move(all));
  }
  if (prepared.spill != nullptr) {
    AddSpill(prepared, out);
  }
  return out;
}

void ShareSpaces(const Plan& plan, PlanSpaces& spaces) {
  std::vector<bool> is_used(spaces.spaces.size());
  for (const scheduler::Task& task : plan.tasks) {
    is_used[spaces.devices[task.device].space] = true;
  }
  for (const CommonLimit& common : spaces.common) {
    uint64_t users = 0;
    for (const SpaceIndex space : common.spaces) {
      users += is_used[space] ? 1 : 0;
    }
    for (const SpaceIndex space : common.spaces) {
      spaces.spaces[space].bytes_max =
          std::min(spaces.spaces[space].bytes_max, common.bytes_max / std::max<uint64_t>(users, 1));
    }
  }
}

Status CheckSpaces(const PlanSpaces& spaces, const scheduler::Residency& residency) {
  const auto check = [](uint64_t bytes, uint64_t bytes_max, const std::string& name) {
    return bytes <= bytes_max ? absl::OkStatus()
                              : ResourceExhausted("The graph's temporary buffers (" + std::to_string(bytes) +
                                                  " bytes) are larger than what " + name + " may hold (" +
                                                  std::to_string(bytes_max) + " bytes).");
  };
  for (SpaceIndex space = 0; space < spaces.spaces.size(); ++space) {
    HPVMD_RETURN_IF_ERROR(check(residency.temporary_bytes[space], spaces.spaces[space].bytes_max,
                                "device " + spaces.devices[spaces.spaces[space].mover].id));
  }
  for (const CommonLimit& common : spaces.common) {
    uint64_t bytes = 0;
    for (const SpaceIndex space : common.spaces) {
      bytes = AddSaturating(bytes, residency.temporary_bytes[space]);
    }
    HPVMD_RETURN_IF_ERROR(check(bytes, common.bytes_max, common.name));
  }
  return absl::OkStatus();
}

Status ExplainNoRoom(const PreparedGraph& prepared, const Plan& plan, const PlanSpaces& spaces, uint32_t task,
                     Status why) {
  const scheduler::Task& t = plan.tasks[task];
  const graph::FlatNode& node = plan.flat.nodes[t.node.index];
  const SpaceIndex space = spaces.devices[t.device].space;
  const std::vector<bool> is_callers = FindCallersMemory(plan.flat);
  const uint64_t bytes = LeastBytes(plan.flat, node.first_port, prepared.graph.node(node.leaf).ports.size(),
                                    space == kHostSpace ? &is_callers : nullptr);
  if (bytes > spaces.spaces[space].bytes_max) {
    why = ResourceExhausted("Its buffers (" + std::to_string(bytes) +
                            " bytes) are larger than what the graph may hold (" +
                            std::to_string(spaces.spaces[space].bytes_max) + " bytes).");
  }
  return While(why, "planning memory for node \"" + graph::PathOf(prepared.graph, node) + "\" on device " +
                        plan.devices[t.device]->info().id);
}

Status CheckFits(const PreparedGraph& prepared, const graph::FlatGraph& flat) {
  const PlanSpaces spaces = SpacesOf(prepared, Grants::kIgnored);
  const std::vector<bool> is_callers = FindCallersMemory(flat);
  for (const graph::FlatNode& node : flat.nodes) {
    const size_t ports = prepared.graph.node(node.leaf).ports.size();
    std::string why;
    for (const scheduler::Candidate& candidate : prepared.candidates[node.leaf.index]) {
      const SpaceIndex space = prepared.facts[candidate.device].space;
      const uint64_t bytes = LeastBytes(flat, node.first_port, ports, space == kHostSpace ? &is_callers : nullptr);
      if (bytes <= spaces.spaces[space].bytes_max) {
        why.clear();
        break;
      }
      why += (why.empty() ? "" : "; ") + std::to_string(bytes) + " bytes against " +
             std::to_string(spaces.spaces[space].bytes_max) + " on device " + prepared.facts[candidate.device].id;
    }
    if (!why.empty()) {
      return ResourceExhausted("The buffers of node \"" + graph::PathOf(prepared.graph, node) +
                               "\" fit no device that may run it: " + why + ".");
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::engine
