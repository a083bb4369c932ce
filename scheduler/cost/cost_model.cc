// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cost/cost_model.h"

#include <algorithm>

#include "scheduler/cost/cost_history.h"

namespace hpvm::scheduler {
namespace {

// Constants of StaticCosts. A GPU's launch passes through a driver's queue; a processor's only wakes threads.
constexpr double kGpuLaunchNs = 10'000;
constexpr double kHostLaunchNs = 1'000;
// Time of one instance on one unit: a loop of some tens of steps on a processor's core; a GPU's unit runs hundreds at
// once.
constexpr double kHostInstanceNs = 50;
constexpr double kGpuInstanceNs = 0.25;
// Arithmetic speed of devices that do not report it: vectors of a core at some efficiency, and a small GPU's
// multiprocessor.
constexpr double kHostUnitOperationsPerNs = 10;
constexpr double kGpuUnitOperationsPerNs = 100;
// Memory speed of devices that do not report it: a desktop's, and a small GPU's.
constexpr double kHostBytesPerNs = 20;
constexpr double kGpuBytesPerNs = 200;
// PCI Express with pageable memory, and the wait for the copy's end.
constexpr double kLinkStartNs = 20'000;
constexpr double kLinkBytesPerNs = 12;

// Estimates add up without overflow: they are capped at a day.
constexpr double kLongestNs = 86'400e9;
Duration FromNs(double ns) { return Duration(static_cast<int64_t>(std::min(ns, kLongestNs))); }

// Saturating arithmetic.
uint64_t Times(uint64_t a, uint64_t b) { return __builtin_mul_overflow(a, b, &a) ? ~uint64_t{0} : a; }
uint64_t Plus(uint64_t a, uint64_t b) { return __builtin_add_overflow(a, b, &a) ? ~uint64_t{0} : a; }

uint64_t InstancesOf(const std::array<uint64_t, 3>& count) { return Times(Times(count[0], count[1]), count[2]); }

}  // namespace

Work PortWork::Of(graph::FlatNodeId node, uint32_t choice, const Box& box) const {
  const graph::FlatNode& n = flat_.nodes[node.index];
  Work work{.leaf = n.leaf, .choice = choice, .instances = InstancesOf(box.count)};
  const size_t end = node.index + 1 < flat_.nodes.size() ? flat_.nodes[node.index + 1].first_port : flat_.ports.size();
  for (size_t port = n.first_port; port < end; ++port) {
    const graph::FlatPort& p = flat_.ports[port];
    work.bytes = Plus(work.bytes, flat_.values[(p.out.valid() ? p.out : p.in).index].bytes);
  }
  const uint64_t all = InstancesOf(n.extent);
  if (work.instances < all) {
    work.bytes = static_cast<uint64_t>(static_cast<double>(work.bytes) * static_cast<double>(work.instances) /
                                       static_cast<double>(all));
  }
  return work;
}

Roofline RooflineOf(const Work& work, const DeviceFacts& device) {
  const double bytes_per_ns = device.bytes_per_second > 0 ? device.bytes_per_second / 1e9
                              : device.is_gpu             ? kGpuBytesPerNs
                                                          : kHostBytesPerNs;
  const double units = std::max(1u, device.compute_units);
  const double moving_ns = static_cast<double>(work.bytes) / bytes_per_ns;
  double running_ns = 0;
  if (work.operations > 0) {
    const double operations_per_ns = device.operations_per_second > 0
                                         ? device.operations_per_second / 1e9
                                         : units * (device.is_gpu ? kGpuUnitOperationsPerNs : kHostUnitOperationsPerNs);
    running_ns = work.operations / operations_per_ns;
  } else {
    running_ns = static_cast<double>(work.instances) * (device.is_gpu ? kGpuInstanceNs : kHostInstanceNs) / units;
  }
  const double launch_ns = device.launch_ns > 0 ? device.launch_ns : device.is_gpu ? kGpuLaunchNs : kHostLaunchNs;
  return {.launch_ns = std::min(launch_ns, kLongestNs),
          .body_ns = std::min(std::max(moving_ns, running_ns), kLongestNs)};
}

Cost StaticCosts::Run(const Work& work, DeviceIndex, const DeviceFacts& device) const {
  const Roofline roof = RooflineOf(work, device);
  return {.time = FromNs(roof.launch_ns + roof.body_ns), .is_guess = true};
}

Duration StaticCosts::Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const {
  return FromNs(LinkEstimate().At(bytes));
}

TransferLine LinkEstimate() { return {.start_ns = kLinkStartNs, .bytes_per_second = kLinkBytesPerNs * 1e9}; }

}  // namespace hpvm::scheduler
