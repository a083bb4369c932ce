// SPDX-License-Identifier: Apache-2.0
// Problem is a flat graph in the form used by list scheduling: jobs (launches or parts of launches) that read and write
// items (values, or ranges of values that are moved separately), with the options that may run each job.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_PROBLEM_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_PROBLEM_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_options.h"

namespace hpvm::scheduler::placing {

// Concatenated lists of numbers.
struct Lists {
  std::vector<uint32_t> begin{0}, all;
  std::span<const uint32_t> operator[](uint32_t i) const { return {all.data() + begin[i], begin[i + 1] - begin[i]}; }
  void Close() { begin.push_back(static_cast<uint32_t>(all.size())); }
};

struct PlacedTask {
  uint32_t node = 0;
  OptionSet options;
};

struct Item {
  graph::FlatValueId value;
  ByteRange range;
  uint32_t producer = kNone;    // Job; kNone when it is in host memory from the start.
  uint32_t size_class = 0;      // Size class when moved between jobs, or from its initial place.
  uint32_t returned_class = 0;  // Size class when moved to the caller.
  bool is_returned = false;     // The item is an output.
};

// A node cut into parts, in the order of their boxes. One part: the whole node with its own options.
struct Part {
  OptionSet options;
  Box box;
};
struct Cut {
  uint32_t node = 0;
  std::vector<Part> parts;
};

struct Problem {
  const Resources* resources = nullptr;
  const Options* options = nullptr;
  // In an order that respects all dependencies.
  std::vector<PlacedTask> jobs;
  std::vector<Box> boxes;  // Indexed by job; empty when there are no cuts.
  std::vector<Item> items;
  Lists reads, writes;  // Items, by job.
  Lists readers;        // Jobs, by item.
  // A job that updates in place comes after the readers of the value it replaces. Indexed by job: those before it, and
  // those after.
  Lists before, after;
  // Nanoseconds of a transfer by size class and space: from host memory to the space, and back.
  std::vector<std::vector<int64_t>> up_ns, down_ns;
  std::vector<int64_t> host_ns;  // Indexed by size class: time of the host's copies; at most as long as the transfer.
  // Parts of launches begin together, each with its copies: this many devices share the host's copies evenly.
  uint32_t links_at_once = 1;

  uint32_t HostOf(SpaceIndex space) const {
    return links_at_once > 1 ? resources->host_part[space] : resources->host_copies;
  }

  std::span<const Option> OptionsOf(uint32_t job) const { return options->List(jobs[job].options); }
  int64_t MoveNs(uint32_t size_class, SpaceIndex from, SpaceIndex to) const {
    return from == to ? 0 : down_ns[size_class][from] + up_ns[size_class][to];
  }
};

// `cuts` are sorted by node. Without cuts there is one job per node and one item per value. Cuts need
// PlacementInput::accesses.
Problem MakeProblem(const PlacementInput& input, const Resources& resources, const Options& options,
                    std::span<const Cut> cuts);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_PROBLEM_H_
