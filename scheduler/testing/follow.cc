// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/follow.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_decode.h"
#include "scheduler/placement/placement_options.h"
#include "scheduler/placement/placement_output.h"
#include "scheduler/placement/placement_problem.h"

namespace hpvm::scheduler {
namespace {

using placing::kNone;
using placing::Option;

// The given tasks as a problem in which every job has its option.
class Present {
 public:
  Present(const PlacementInput& input, std::span<const Task> tasks)
      : input_(input),
        tasks_(tasks),
        resources_(placing::FindResources(input.devices, input.costs)),
        options_(input, resources_) {}

  StatusOr<Placement> Follow(bool fills_gaps, uint32_t* unplaced) {
    if (!options_.Find(unplaced)) {
      return FailedPrecondition("No device can run the node.");
    }
    HPVMD_RETURN_IF_ERROR(SortByNode(unplaced));
    const std::vector<placing::Cut> cuts = FindCuts();
    const placing::Problem problem = placing::MakeProblem(input_, resources_, options_, cuts);
    placing::Best best;
    best.priority.resize(problem.jobs.size());
    for (uint32_t job = 0; job < problem.jobs.size(); ++job) {
      best.priority[job] = -static_cast<int64_t>(by_node_[job].second);
    }
    best.gaps_max = fills_gaps ? by_node_.size() : 0;
    placing::Decoder(problem).Decode({.priority = best.priority, .pinned = pinned_, .gaps_max = best.gaps_max},
                                     best.plan);
    Placement placement;
    placement.fallback_nodes = options_.fallback_nodes();
    placing::FillPlacement(input_, problem, best, placement);
    return placement;
  }

 private:
  // Sorts by node, then by box, as MakeProblem orders jobs.
  Status SortByNode(uint32_t* unplaced) {
    for (uint32_t t = 0; t < tasks_.size(); ++t) {
      const uint32_t node = tasks_[t].node.index;
      if (node >= input_.flat.nodes.size() ||
          tasks_[t].choice >= input_.candidates[input_.flat.nodes[node].leaf.index].size()) {
        return FailedPrecondition("Task " + std::to_string(t) + " is of a node, or a candidate, that there is not.");
      }
      by_node_.emplace_back(node, t);
    }
    std::sort(by_node_.begin(), by_node_.end(), [&](const auto& a, const auto& b) {
      return std::pair(a.first, tasks_[a.second].box.first) < std::pair(b.first, tasks_[b.second].box.first);
    });
    uint32_t next = 0;
    for (const auto& [node, task] : by_node_) {
      if (node > next) {
        break;
      }
      next = node + 1;
    }
    if (next != input_.flat.nodes.size()) {
      *unplaced = next;
      return FailedPrecondition("Node " + std::to_string(next) + " has no task.");
    }
    return absl::OkStatus();
  }

  // Finds nodes that are cut into parts, or that run by another variant than would be chosen now.
  std::vector<placing::Cut> FindCuts() {
    std::vector<placing::Cut> cuts;
    pinned_.assign(by_node_.size(), 0);
    for (size_t first = 0, end = 0; first < by_node_.size(); first = end) {
      const uint32_t node = by_node_[first].first;
      for (end = first + 1; end < by_node_.size() && by_node_[end].first == node;) {
        ++end;
      }
      const uint32_t choice = tasks_[by_node_[first].second].choice;
      const std::span<const Option> known = options_.List(options_.Of(node));
      const auto at = std::find_if(known.begin(), known.end(), [&](const Option& o) { return o.choice == choice; });
      if (end == first + 1 && at != known.end()) {
        pinned_[first] = static_cast<uint32_t>(at - known.begin());
        continue;
      }
      placing::Cut cut{.node = node, .parts = {}};
      for (size_t i = first; i < end; ++i) {
        const Task& task = tasks_[by_node_[i].second];
        Option option;
        option.choice = task.choice;
        option.device = input_.candidates[input_.flat.nodes[node].leaf.index][task.choice].device;
        cut.parts.push_back({.options = options_.Add(options_.Part(node, option, task.box)), .box = task.box});
      }
      cuts.push_back(std::move(cut));
    }
    return cuts;
  }

  const PlacementInput& input_;
  const std::span<const Task> tasks_;
  const placing::Resources resources_;
  placing::Options options_;
  std::vector<std::pair<uint32_t, uint32_t>> by_node_;  // Pairs of node and task.
  std::vector<uint32_t> pinned_;                        // Indexed by job.
};

}  // namespace

StatusOr<Placement> Follow(const PlacementInput& input, std::span<const Task> tasks, bool fills_gaps,
                           uint32_t* unplaced) {
  if (input.accesses == nullptr && std::any_of(tasks.begin(), tasks.end(), [](const Task& t) { return t.is_part; })) {
    return FailedPrecondition("The tasks are parts of launches, and no access model says what they touch.");
  }
  return input.flat.nodes.empty() ? Placement() : Present(input, tasks).Follow(fills_gaps, unplaced);
}

}  // namespace hpvm::scheduler
