// SPDX-License-Identifier: Apache-2.0
#include "engine/device_facts.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace hpvm::engine {
namespace {

using scheduler::Tier;

constexpr scheduler::SpaceIndex kNoSpace = ~scheduler::SpaceIndex{0};

Tier TierOf(const DeviceInfo& info) {
  return info.kind == DeviceKind::kNull     ? Tier::kNull
         : info.kind == DeviceKind::kInterp ? Tier::kReference
         : info.is_emulated                 ? Tier::kEmulated
                                            : Tier::kReal;
}

}  // namespace

std::vector<scheduler::DeviceFacts> FactsOfDevices(std::span<Device* const> devices) {
  std::vector<scheduler::DeviceFacts> facts;
  std::unordered_map<std::string, uint32_t> silicons;
  for (const Device* device : devices) {
    const DeviceInfo& info = device->info();
    // A device that does not report its silicon counts as separate hardware.
    const std::string& silicon = info.silicon.empty() ? info.id : info.silicon;
    const uint32_t number = silicons.try_emplace(silicon, static_cast<uint32_t>(silicons.size())).first->second;
    facts.push_back({.id = info.id,
                     .tier = TierOf(info),
                     .compute_units = info.compute_units,
                     .is_gpu = IsGpuCode(device->artifact_kind()) && !info.is_emulated,
                     .bytes_per_second = info.bytes_per_second,
                     .operations_per_second = info.operations_per_second,
                     .launch_ns = info.launch_ns,
                     // CPU devices distribute a list of independent launches over their threads.
                     .lanes = info.kind == DeviceKind::kCpu ? std::max(info.compute_units, 1u) : 1,
                     .silicon = number,
                     .has_copy_lanes = info.has_copy_lanes});
  }
  return facts;
}

bool AssignSpaces(PreparedGraph& graph, bool may_share) {
  scheduler::SpaceIndex next = scheduler::kHostSpace + 1;
  std::unordered_map<std::string, size_t> exporters;
  for (size_t i = 0; i < graph.devices.size(); ++i) {
    const DeviceInfo& info = graph.devices[i]->info();
    const bool is_exporter = may_share && info.exports_memory && !info.host_visible && !info.silicon.empty() &&
                             exporters.try_emplace(info.silicon, i).second;
    graph.facts[i].space = info.host_visible ? scheduler::kHostSpace : is_exporter ? next++ : kNoSpace;
  }
  bool has_shared = false;
  for (size_t i = 0; i < graph.devices.size(); ++i) {
    if (graph.facts[i].space != kNoSpace) {
      continue;
    }
    const DeviceInfo& info = graph.devices[i]->info();
    const auto exporter = exporters.find(info.silicon);
    const bool shares = info.imports_memory && exporter != exporters.end();
    graph.facts[i].space = shares ? graph.facts[exporter->second].space : next++;
    has_shared = has_shared || shares;
  }
  return has_shared;
}

}  // namespace hpvm::engine
