// SPDX-License-Identifier: Apache-2.0
// A flat graph as list scheduling sees it: jobs (launches or parts of launches) that read and write items (values, or
// ranges of values that are moved on their own), with what may run each job.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_PROBLEM_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_PROBLEM_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_options.h"

namespace hpvm::scheduler::placing {

// Lists of numbers, one after another.
struct Lists {
  std::vector<uint32_t> begin{0}, all;
  std::span<const uint32_t> operator[](uint32_t i) const { return {all.data() + begin[i], begin[i + 1] - begin[i]}; }
  void Close() { begin.push_back(static_cast<uint32_t>(all.size())); }
};

struct Job {
  uint32_t node = 0;
  OptionSet options;
};

struct Item {
  graph::FlatValueId value;
  ByteRange range;
  uint32_t producer = kNone;    // Job; kNone: it lies in host memory from the start.
  uint32_t size_class = 0;      // As it is moved between jobs, or from where it lies at the start.
  uint32_t returned_class = 0;  // As it is moved to the caller.
  bool is_returned = false;     // The caller gets it.
};

// A node cut into parts, in the order of their boxes. One part: the whole node with options of its own.
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
  // In an order that respects everything.
  std::vector<Job> jobs;
  std::vector<Box> boxes;  // By job; empty when there are no cuts.
  std::vector<Item> items;
  Lists reads, writes;  // Items, by job.
  Lists readers;        // Jobs, by item.
  // Who updates in place comes after those that read what it replaces: by job, those before, and those after.
  Lists before, after;
  // Nanoseconds of a transfer by size class and space: to it from host memory, and back.
  std::vector<std::vector<int64_t>> up_ns, down_ns;
  std::vector<int64_t> host_ns;  // By size class: of the host's copies; at most as long as the transfer.
  // Parts of launches begin together, each with its copies: so many devices have an even part of the host's copies.
  uint32_t links_at_once = 1;

  uint32_t HostOf(SpaceIndex space) const {
    return links_at_once > 1 ? resources->host_part[space] : resources->host_copies;
  }

  std::span<const Option> OptionsOf(uint32_t job) const { return options->List(jobs[job].options); }
  int64_t MoveNs(uint32_t size_class, SpaceIndex from, SpaceIndex to) const {
    return from == to ? 0 : down_ns[size_class][from] + up_ns[size_class][to];
  }
};

// `cuts` by ascending node. Nothing is cut: one job a node, one item a value. Cuts need PlacementInput::accesses.
Problem MakeProblem(const PlacementInput& input, const Resources& resources, const Options& options,
                    std::span<const Cut> cuts);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_PROBLEM_H_
