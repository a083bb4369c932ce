// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "scheduler/placement_decode.h"
#include "scheduler/placement_options.h"
#include "scheduler/placement_problem.h"
#include "scheduler/placement_search.h"
#include "scheduler/placement_split.h"

namespace hpvm::scheduler {
namespace {

using placing::kForever;
using placing::kNone;
using placing::Option;
using placing::PortsOf;

Task TaskOf(uint32_t node, const Option& option, const Box& box, int64_t start, int64_t end) {
  return {.node = graph::FlatNodeId(node),
          .choice = option.choice,
          .device = option.device,
          .box = box,
          .start = Duration(start),
          .end = Duration(end),
          .is_estimate = option.is_estimate};
}

// One device in host space: in the graph's own order, which keeps what is used together near, each launch on the lane
// that is free first.
class OneDevice {
 public:
  OneDevice(const PlacementInput& input, const placing::Resources& resources, const placing::Options& options)
      : flat_(input.flat), options_(options), lanes_(resources.lanes[resources.of_device[options.only_device()]]) {}

  void Fill(Placement& placement) {
    placement.tasks.reserve(flat_.nodes.size());
    made_.resize(lanes_.size() > 1 ? flat_.values.size() : 0);
    read_.resize(made_.size());
    for (uint32_t node = 0; node < flat_.nodes.size(); ++node) {
      const Option& option = options_.List(options_.Of(node))[0];
      const auto [start, end] = lanes_.size() == 1 ? Append(option) : Spread(node, option);
      placement.tasks.push_back(TaskOf(node, option, {.count = flat_.nodes[node].extent}, start, end));
      placement.estimated_nodes += option.is_estimate ? 1 : 0;
      placement.makespan = std::max(placement.makespan, Duration(end));
    }
  }

 private:
  std::pair<int64_t, int64_t> Append(const Option& option) {
    const int64_t start = lanes_[0];
    return {start, lanes_[0] += option.best_ns()};
  }

  std::pair<int64_t, int64_t> Spread(uint32_t node, const Option& option) {
    int64_t ready = 0;
    const auto [begin, end] = PortsOf(flat_, node);
    for (uint32_t port = begin; port < end; ++port) {
      const graph::FlatPort& p = flat_.ports[port];
      if (p.in.valid()) {
        ready = std::max({ready, made_[p.in.index], p.out.valid() ? read_[p.in.index] : 0});
      }
    }
    const auto lane = std::min_element(lanes_.begin(), lanes_.end());
    const int64_t alone = std::max(ready, *lane);
    int64_t start = alone, finish = kForever;
    if (option.lane_ns != kForever) {
      finish = alone + option.lane_ns;
    }
    if (option.all_ns != kForever) {
      const int64_t together = std::max(ready, *std::max_element(lanes_.begin(), lanes_.end()));
      if (together + option.all_ns < finish) {
        start = together;
        finish = together + option.all_ns;
        std::fill(lanes_.begin(), lanes_.end(), finish);
      }
    }
    *lane = std::max(*lane, finish);
    for (uint32_t port = begin; port < end; ++port) {
      const graph::FlatPort& p = flat_.ports[port];
      if (p.out.valid()) {
        made_[p.out.index] = finish;
      }
      if (p.in.valid()) {
        read_[p.in.index] = std::max(read_[p.in.index], finish);
      }
    }
    return {start, finish};
  }

  const graph::FlatGraph& flat_;
  const placing::Options& options_;
  std::vector<int64_t> lanes_;         // Free from then on.
  std::vector<int64_t> made_, read_;  // By value: when it is there, and when who read it so far is done.
};

// Jobs by planned start. Where nodes are cut, parts follow one another, and a node stands behind all it depends on: the
// first part of a reader may start before the last part of what it reads.
std::vector<uint32_t> OrderOf(const placing::Problem& problem, const placing::Plan& plan, size_t nodes) {
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
    for (uint32_t job = first[node]; job < first[node + 1]; ++job) {
      order.push_back(job);
      for_followers(job, [&](uint32_t next) {
        if (--waits[next] == 0) {
          ready.emplace(starts[next], next);
        }
      });
    }
  }
  return order;
}

void Fill(const PlacementInput& input, const placing::Problem& problem, const placing::Best& best,
          Placement& placement) {
  placement.makespan = Duration(best.plan.makespan);
  placement.tasks.reserve(problem.jobs.size());
  uint32_t counted = kNone;
  for (const uint32_t job : OrderOf(problem, best.plan, input.flat.nodes.size())) {
    const placing::Planned& planned = best.plan.jobs[job];
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
    for (const placing::Planned& planned : best.plan.jobs) {
      pinned.push_back(planned.option);
    }
    placing::Plan again;
    placing::Decoder(problem).Decode({.priority = best.priority,
                                      .pinned = pinned,
                                      .width = best.width,
                                      .gaps_max = best.gaps_max,
                                      .wants_transfers = true},
                                     again);
    placement.transfers = std::move(again.transfers);
  }
}

}  // namespace

StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced) {
  Placement placement;
  if (input.flat.nodes.empty()) {
    return placement;
  }
  const placing::Resources resources = placing::FindResources(input.devices);
  placing::Options options(input, resources);
  if (!options.Find(unplaced)) {
    return FailedPrecondition("No device can run the node.");
  }
  placement.fallback_nodes = options.fallback_nodes();
  if (options.only_device() != kNone && input.devices[options.only_device()].space == kHostSpace) {
    OneDevice(input, resources, options).Fill(placement);
    return placement;
  }
  placing::Problem problem = placing::MakeProblem(input, resources, options, {});
  placing::Best best;
  placing::Search(problem, {.effort = input.effort, .seed = input.seed}, best);
  if (input.accesses != nullptr) {
    placing::ImproveByCuts(input, resources, options, problem, best);
  }
  Fill(input, problem, best, placement);
  return placement;
}

}  // namespace hpvm::scheduler
