// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement/placement.h"

#include <algorithm>
#include <utility>

#include "scheduler/placement/placement_options.h"
#include "scheduler/placement/placement_output.h"
#include "scheduler/placement/placement_problem.h"
#include "scheduler/placement/placement_search.h"
#include "scheduler/placement/placement_split.h"

namespace hpvm::scheduler {
namespace {

using placing::kForever;
using placing::kNone;
using placing::Option;
using placing::PortsOf;

// Plans for one device in host space: launches in the graph's own order, which preserves locality, each on the lane
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
      placement.tasks.push_back(placing::TaskOf(node, option, {.count = flat_.nodes[node].extent}, start, end));
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
  std::vector<int64_t> lanes_;        // Time from which each lane is free.
  std::vector<int64_t> made_, read_;  // Indexed by value: when it is ready, and when its readers so far are done.
};

}  // namespace

StatusOr<Placement> Place(const PlacementInput& input, uint32_t* unplaced) {
  Placement placement;
  if (input.flat.nodes.empty()) {
    return placement;
  }
  const placing::Resources resources = placing::FindResources(input.devices, input.costs);
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
  std::vector<Whole> whole;
  if (input.accesses != nullptr) {
    Placement uncut;
    PlacementInput plain = input;
    plain.wants_transfers = false;
    placing::FillPlacement(plain, problem, best, uncut);
    whole = placing::ImproveByCuts(input, resources, options, problem, best);
    if (!problem.boxes.empty()) {
      placement.uncut = std::move(uncut.tasks);
    }
  }
  placing::FillPlacement(input, problem, best, placement);
  for (Task& task : placement.tasks) {
    task.whole = task.node.index < whole.size() ? whole[task.node.index] : Whole::kNotAsked;
  }
  return placement;
}

}  // namespace hpvm::scheduler
