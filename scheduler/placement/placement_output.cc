// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement/placement_output.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace hpvm::scheduler::placing {
namespace {

// Returns jobs by planned start. When nodes are cut, the parts of a node are adjacent, and a node comes after all nodes
// it depends on: the first part of a reader may start before the last part of the node it reads, and a part that reads
// nothing written by its producer may start before all of it.
std::vector<uint32_t> OrderOf(const graph::FlatGraph& flat, const Problem& problem, const DecodedPlan& plan) {
  const size_t nodes = flat.nodes.size();
  std::vector<uint32_t> order(problem.jobs.size());
  for (uint32_t job = 0; job < order.size(); ++job) {
    order[job] = job;
  }
  if (problem.boxes.empty()) {
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(plan.jobs[a].start, a) < std::pair(plan.jobs[b].start, b);
    });
    return order;
  }
  std::vector<int64_t> starts(nodes, kForever);
  std::vector<uint32_t> first(nodes + 1), waits(nodes);
  for (uint32_t job = 0; job < order.size(); ++job) {
    const uint32_t node = problem.jobs[job].node;
    starts[node] = std::min(starts[node], plan.jobs[job].start);
    first[node + 1] = job + 1;
  }
  const auto for_followers = [&](uint32_t job, const auto& visit) {
    for (const uint32_t item : problem.writes[job]) {
      for (const uint32_t reader : problem.readers[item]) {
        visit(problem.jobs[reader].node);
      }
    }
    for (const uint32_t next : problem.after[job]) {
      visit(problem.jobs[next].node);
    }
  };
  for (uint32_t job = 0; job < order.size(); ++job) {
    for_followers(job, [&](uint32_t next) { ++waits[next]; });
  }
  // The graph's own edges.
  std::vector<std::vector<uint32_t>> readers(nodes);
  for (uint32_t node = 0; node < nodes; ++node) {
    const auto [begin, end] = PortsOf(flat, node);
    for (uint32_t port = begin; port < end; ++port) {
      const graph::FlatValueId in = flat.ports[port].in;
      if (in.valid() && flat.values[in.index].producer.valid()) {
        readers[flat.values[in.index].producer.index].push_back(node);
        ++waits[node];
      }
    }
  }
  std::priority_queue<std::pair<int64_t, uint32_t>, std::vector<std::pair<int64_t, uint32_t>>, std::greater<>> ready;
  for (uint32_t node = 0; node < nodes; ++node) {
    if (waits[node] == 0) {
      ready.emplace(starts[node], node);
    }
  }
  order.clear();
  while (!ready.empty()) {
    const uint32_t node = ready.top().second;
    ready.pop();
    const auto release = [&](uint32_t next) {
      if (--waits[next] == 0) {
        ready.emplace(starts[next], next);
      }
    };
    for (uint32_t job = first[node]; job < first[node + 1]; ++job) {
      order.push_back(job);
      for_followers(job, release);
    }
    std::for_each(readers[node].begin(), readers[node].end(), release);
  }
  return order;
}

}  // namespace

Task TaskOf(uint32_t node, const Option& option, const Box& box, int64_t start, int64_t end) {
  return {.node = graph::FlatNodeId(node),
          .choice = option.choice,
          .device = option.device,
          .box = box,
          .start = Duration(start),
          .end = Duration(end),
          .is_estimate = option.is_estimate,
          .is_guess = option.is_guess};
}

void FillPlacement(const PlacementInput& input, const Problem& problem, const Best& best, Placement& placement) {
  placement.makespan = Duration(best.plan.makespan);
  placement.tasks.reserve(problem.jobs.size());
  uint32_t counted = kNone;
  for (const uint32_t job : OrderOf(input.flat, problem, best.plan)) {
    const Planned& planned = best.plan.jobs[job];
    const uint32_t node = problem.jobs[job].node;
    const Box box = problem.boxes.empty() ? Box{.count = input.flat.nodes[node].extent} : problem.boxes[job];
    placement.tasks.push_back(TaskOf(node, problem.OptionsOf(job)[planned.option], box, planned.start, planned.end));
    Task& task = placement.tasks.back();
    task.is_part = box.count != input.flat.nodes[node].extent;
    if (task.is_estimate && counted != node) {
      counted = node;
      ++placement.estimated_nodes;
    }
  }
  if (input.wants_transfers) {
    std::vector<uint32_t> pinned;
    for (const Planned& planned : best.plan.jobs) {
      pinned.push_back(planned.option);
    }
    DecodedPlan again;
    Decoder(problem).Decode({.priority = best.priority,
                             .pinned = pinned,
                             .width = best.width,
                             .gaps_max = best.gaps_max,
                             .wants_transfers = true},
                            again);
    placement.transfers = std::move(again.transfers);
  }
}

}  // namespace hpvm::scheduler::placing
