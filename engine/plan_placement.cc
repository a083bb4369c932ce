// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_placement.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "engine/costs.h"
#include "scheduler/placement/placement.h"

namespace hpvm::engine {
namespace {

// Limit on the instances of one launch. Devices index them with 64 bits; no device finishes more in a lifetime.
constexpr uint64_t kInstancesMax = uint64_t{1} << 62;
// GPUs count instances of a dimension with signed 32-bit numbers.
constexpr uint64_t kGpuExtentMax = (uint64_t{1} << 31) - 1;

Status CheckBuffers(const PreparedGraph& prepared, const graph::FlatGraph& flat, uint32_t index, const Device& device) {
  const DeviceInfo& info = device.info();
  uint64_t limit = info.allocation_bytes_max != 0 ? info.allocation_bytes_max : std::numeric_limits<uint64_t>::max();
  if (IsGpuCode(device.artifact_kind()) && info.gpu.buffer_bytes_max != 0) {
    limit = std::min(limit, info.gpu.buffer_bytes_max);
  }
  const graph::FlatNode& node = flat.nodes[index];
  const std::vector<graph::Port>& ports = prepared.graph.node(node.leaf).ports;
  for (uint32_t port = 0; port < ports.size(); ++port) {
    const graph::FlatPort& p = flat.ports[node.first_port + port];
    const uint64_t bytes = flat.values[(p.out.valid() ? p.out : p.in).index].bytes;
    if (bytes > limit) {
      return ResourceExhausted("Buffer \"" + ports[port].name + "\" (" + std::to_string(bytes) +
                               " bytes) is larger than the limit of device " + info.id + " (" + std::to_string(limit) +
                               " bytes).");
    }
  }
  return absl::OkStatus();
}

Status CheckGroup(const Device& device, const graph::FlatNode& node, const Artifact& artifact) {
  KernelNeeds needs{
      .kind = artifact.kind, .uses_barrier = artifact.uses_barrier, .uses_group_memory = artifact.uses_group_memory};
  for (size_t d = 0; d < 3; ++d) {
    needs.group[d] = std::max<uint64_t>(node.group[d], 1);
  }
  const Support support = device.Supports(needs);
  return support.ok ? absl::OkStatus() : FailedPrecondition("Device " + device.info().id + ": " + support.reason);
}

}  // namespace

Status CheckExtents(const PreparedGraph& prepared, const graph::FlatGraph& flat) {
  for (const graph::FlatNode& node : flat.nodes) {
    uint64_t instances = 1;
    for (uint64_t extent : node.extent) {
      if (__builtin_mul_overflow(instances, extent, &instances) || instances > kInstancesMax) {
        return InvalidArgument("Node \"" + graph::PathOf(prepared.graph, node) + "\" has too many instances (" +
                               std::to_string(node.extent[0]) + " x " + std::to_string(node.extent[1]) + " x " +
                               std::to_string(node.extent[2]) + "); at most 2^62 are allowed.");
      }
    }
  }
  return absl::OkStatus();
}

Status CheckLaunch(const PreparedGraph& prepared, const graph::FlatGraph& flat, uint32_t index, uint32_t choice) {
  const graph::FlatNode& node = flat.nodes[index];
  const uint32_t at = prepared.candidates[node.leaf.index][choice].device;
  const Device& device = *prepared.devices[at];
  if (at < prepared.is_lost.size() && prepared.is_lost[at]) {
    return FailedPrecondition("Device " + device.info().id + " was lost.");
  }
  if (at < prepared.is_closed.size() && prepared.is_closed[at]) {
    return Unavailable("Device " + device.info().id + " is fenced or paused, and starts no new work.");
  }
  HPVMD_RETURN_IF_ERROR(CheckBuffers(prepared, flat, index, device));
  if (IsGpuCode(device.artifact_kind())) {
    for (const uint64_t extent : node.extent) {
      if (extent > kGpuExtentMax) {
        return FailedPrecondition("The launch's extent (" + std::to_string(extent) +
                                  ") is larger than the limit of device " + device.info().id + " (" +
                                  std::to_string(kGpuExtentMax) + " in each dimension).");
      }
    }
  }
  return node.group[0] == 0 ? absl::OkStatus()
                            : CheckGroup(device, node, prepared.executables[node.leaf.index][choice]->artifact());
}

Status ExplainUnplaced(const PreparedGraph& prepared, const graph::FlatGraph& flat, uint32_t index, Status why) {
  const graph::FlatNode& node = flat.nodes[index];
  std::string reasons;
  for (uint32_t choice = 0; choice < prepared.candidates[node.leaf.index].size(); ++choice) {
    const Status reason = CheckLaunch(prepared, flat, index, choice);
    if (!reason.ok() && reasons.find(Message(reason)) == std::string::npos) {
      why = reasons.empty() || absl::IsUnavailable(reason) ? reason : why;  // The device may soon be available again.
      reasons += (reasons.empty() ? "" : " ") + Message(reason);
    }
  }
  return While(reasons.empty() ? why : Status(why.code(), reasons),
               "placing node \"" + graph::PathOf(prepared.graph, node) + "\"");
}

namespace {

// Pins every node that has a candidate on the device to it.
std::vector<scheduler::PlacementPin> PinAll(const PreparedGraph& prepared, const graph::FlatGraph& flat,
                                            uint32_t device) {
  std::vector<scheduler::PlacementPin> pins;
  for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
    const std::vector<scheduler::Candidate>& candidates = prepared.candidates[flat.nodes[node].leaf.index];
    const auto found = std::find_if(candidates.begin(), candidates.end(),
                                    [&](const scheduler::Candidate& candidate) { return candidate.device == device; });
    if (found != candidates.end()) {
      pins.push_back({graph::FlatNodeId(node), static_cast<uint32_t>(found - candidates.begin())});
    }
  }
  return pins;
}

}  // namespace

Status PlaceNodes(const PreparedGraph& prepared, const scheduler::AccessModel* accesses, const PlanCosts& costs,
                  const PlanRequest& request, Plan& plan, std::vector<scheduler::Task>* uncut) {
  const bool is_free = request.only_device == PlanRequest::kAnyDevice;
  const std::vector<scheduler::PlacementPin> pins =
      is_free ? std::vector<scheduler::PlacementPin>() : PinAll(prepared, plan.flat, request.only_device);
  uint32_t unplaced = 0;
  const auto can_run = [&](uint32_t node, const scheduler::Candidate& candidate) {
    const std::vector<scheduler::Candidate>& all = prepared.candidates[plan.flat.nodes[node].leaf.index];
    return CheckLaunch(prepared, plan.flat, node, static_cast<uint32_t>(&candidate - all.data())).ok();
  };
  scheduler::PlacementInput input{.flat = plan.flat,
                                  .devices = prepared.facts,
                                  .candidates = prepared.candidates,
                                  .costs = costs,
                                  .can_run = can_run,
                                  .accesses = is_free ? accesses : nullptr,
                                  .works = &costs,
                                  .pins = is_free ? costs.pins() : pins,
                                  .pieces_max = request.has_whole_shares ? 1u : 4u,
                                  .repeat = request.repeat};
  StatusOr<scheduler::Placement> placement = scheduler::Place(input, &unplaced);
  if (!placement.ok()) {
    return ExplainUnplaced(prepared, plan.flat, unplaced, std::move(placement).status());
  }
  plan.tasks = std::move(placement->tasks);
  *uncut = std::move(placement->uncut);
  plan.fallback_nodes = placement->fallback_nodes;
  plan.estimated_nodes = placement->estimated_nodes;
  plan.makespan = placement->makespan;
  return absl::OkStatus();
}

}  // namespace hpvm::engine
