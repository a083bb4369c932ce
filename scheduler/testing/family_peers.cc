// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "scheduler/placement/placement_decode.h"
#include "scheduler/placement/placement_options.h"
#include "scheduler/placement/placement_output.h"
#include "scheduler/placement/placement_problem.h"
#include "scheduler/placement/placement_search.h"
#include "scheduler/testing/families.h"

namespace hpvm::scheduler {
namespace {

uint32_t EndPort(const graph::FlatGraph& flat, uint32_t node) {
  return node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
}

std::vector<DeviceIndex> ProcessorsOf(const FamilyCase& c) {
  std::vector<DeviceIndex> out;
  for (DeviceIndex d = 0; d < c.devices.size(); ++d) {
    out.insert(out.end(), c.devices[d].lanes, d);
  }
  return out;
}

// Returns edges from producers to readers, in bytes, and edges without bytes from readers to the last in-place update.
std::vector<PeerProblem::Edge> EdgesOf(const graph::FlatGraph& flat) {
  std::map<std::pair<uint32_t, uint32_t>, double> bytes;
  // Readers, and whether they update the value.
  std::vector<std::vector<std::pair<uint32_t, bool>>> readers(flat.values.size());
  for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
    for (uint32_t port = flat.nodes[node].first_port; port < EndPort(flat, node); ++port) {
      const graph::FlatPort& p = flat.ports[port];
      if (!p.in.valid()) {
        continue;
      }
      readers[p.in.index].emplace_back(node, p.out.valid());
      const graph::FlatValue& value = flat.values[p.in.index];
      if (value.producer.valid()) {
        bytes[{value.producer.index, node}] += static_cast<double>(value.bytes);
      }
    }
  }
  for (const auto& list : readers) {
    for (const auto& [node, updates] : list) {
      if (list.back().second && node != list.back().first) {
        bytes.try_emplace({node, list.back().first}, 0);
      }
    }
  }
  std::vector<PeerProblem::Edge> edges;
  for (const auto& [ends, data] : bytes) {
    edges.push_back({ends.first, ends.second, data});
  }
  return edges;
}

}  // namespace

PeerProblem PeerProblemOf(const FamilyCase& c) {
  PeerProblem problem;
  const std::vector<DeviceIndex> processors = ProcessorsOf(c);
  problem.tasks = static_cast<uint32_t>(c.flat.nodes.size());
  problem.processors = static_cast<uint32_t>(processors.size());
  problem.edges = EdgesOf(c.flat);
  for (uint32_t task = 0; task < problem.tasks; ++task) {
    for (const DeviceIndex device : processors) {
      problem.times.push_back(static_cast<double>(c.costs.ns[task][device]));
      double arrival = 0;
      for (uint32_t port = c.flat.nodes[task].first_port; port < EndPort(c.flat, task); ++port) {
        const graph::FlatValueId in = c.flat.ports[port].in;
        if (in.valid() && !c.flat.values[in.index].producer.valid()) {
          arrival = std::max(arrival, static_cast<double>(c.costs.Transfer(c.flat.values[in.index].bytes, kHostSpace,
                                                                           c.devices[device].space)
                                                              .count()));
        }
      }
      problem.arrival.push_back(arrival);
    }
  }
  for (const DeviceIndex a : processors) {
    for (const DeviceIndex b : processors) {
      const SpaceIndex from = c.devices[a].space, to = c.devices[b].space;
      const bool is_near = from == to;
      problem.latency.push_back(is_near ? 0 : c.costs.links[from].latency_ns + c.costs.links[to].latency_ns);
      problem.per_unit.push_back(is_near ? 0 : c.costs.links[from].ns_per_byte + c.costs.links[to].ns_per_byte);
    }
  }
  return problem;
}

std::vector<Task> TasksOf(const FamilyCase& c, const PeerSchedule& schedule) {
  const std::vector<DeviceIndex> processors = ProcessorsOf(c);
  std::vector<Task> tasks;
  for (const uint32_t node : schedule.order) {
    const DeviceIndex device = processors[schedule.processor[node]];
    tasks.push_back({.node = graph::FlatNodeId(node),
                     .choice = device,
                     .device = device,
                     .box = {.count = c.flat.nodes[node].extent}});
  }
  return tasks;
}

StatusOr<Placement> PlaceInOrder(const FamilyCase& c, const std::vector<double>& ranks) {
  const PlacementInput input = c.Input();
  const placing::Resources resources = placing::FindResources(input.devices, input.costs);
  placing::Options options(input, resources);
  uint32_t unplaced = 0;
  if (!options.Find(&unplaced)) {
    return Internal("A device is missing.");
  }
  const placing::Problem problem = placing::MakeProblem(input, resources, options, {});
  placing::Best best;
  best.gaps_max = problem.jobs.size();
  for (const double rank : ranks) {
    best.priority.push_back(std::llround(rank));
  }
  placing::Decoder(problem).Decode({.priority = best.priority, .gaps_max = best.gaps_max}, best.plan);
  Placement placement;
  placing::FillPlacement(input, problem, best, placement);
  return placement;
}

Duration LowerBound(const FamilyCase& c) {
  double bound = 0;
  std::vector<double> path(c.flat.nodes.size());
  for (uint32_t node = 0; node < path.size(); ++node) {
    for (uint32_t port = c.flat.nodes[node].first_port; port < EndPort(c.flat, node); ++port) {
      const graph::FlatValueId in = c.flat.ports[port].in;
      if (in.valid() && c.flat.values[in.index].producer.valid()) {
        path[node] = std::max(path[node], path[c.flat.values[in.index].producer.index]);
      }
    }
    path[node] += static_cast<double>(*std::min_element(c.costs.ns[node].begin(), c.costs.ns[node].end()));
    bound = std::max(bound, path[node]);
  }
  // Weights of devices that add up to one; the most loaded devices get more (exponentiated gradient).
  const size_t devices = c.devices.size();
  std::vector<double> weight(devices, 1.0 / static_cast<double>(devices));
  for (int round = 0; round < 400; ++round) {
    double sum = 0, most = 0, total = 0;
    std::vector<double> load(devices);
    for (const std::vector<int64_t>& ns : c.costs.ns) {
      size_t best = 0;
      const auto price = [&](size_t d) { return weight[d] * static_cast<double>(ns[d]) / c.devices[d].lanes; };
      for (size_t d = 1; d < devices; ++d) {
        best = price(d) < price(best) ? d : best;
      }
      sum += price(best);
      load[best] += static_cast<double>(ns[best]) / c.devices[best].lanes;
    }
    bound = std::max(bound, sum);
    for (const double one : load) {
      most = std::max(most, one);
    }
    for (size_t d = 0; d < devices; ++d) {
      weight[d] *= std::exp(load[d] / most / (1 + round * 0.1));
      total += weight[d];
    }
    for (double& one : weight) {
      one /= total;
    }
  }
  return Duration(static_cast<int64_t>(bound));
}

}  // namespace hpvm::scheduler
