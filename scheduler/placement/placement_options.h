// SPDX-License-Identifier: Apache-2.0
// Collects the options that can run each node and their costs, once for all equal nodes; and the hardware behind
// devices.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_OPTIONS_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_OPTIONS_H_

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "graph/flatten.h"
#include "scheduler/placement/placement.h"

namespace hpvm::scheduler::placing {

inline constexpr uint32_t kNone = 0xffffffffu;
// Later than every time, and safe to add to.
inline constexpr int64_t kForever = std::numeric_limits<int64_t>::max() / 8;

// Launches shorter than this run on one lane; the processor does not wake other threads for them.
inline constexpr int64_t kSharedNs = 20'000;

// Resources that launches or transfers use exclusively: the lanes of one silicon, or one direction of a link. All links
// that copy concurrently with launches share the host's copy bandwidth: each transfer also occupies the host's copies
// for as long as the host alone would take for its bytes.
struct Resources {
  std::vector<uint32_t> lanes;      // Indexed by resource; silicons first.
  std::vector<uint32_t> of_device;  // Indexed by device: its silicon.
  // Indexed by space: the resource that carries transfers to it and from it; kNone for host memory.
  std::vector<uint32_t> up, down;
  uint32_t host_copies = kNone;  // kNone: the host copies as fast as the links.
  // Indexed by space: the space's part of the host's copies when several spaces have equal parts.
  std::vector<uint32_t> host_part;
  double host_ns_per_byte = 0;
  uint32_t spaces = 1;

  // Returns true when transfers between host memory and the space use the host's copies.
  bool TakesHostCopies(SpaceIndex space) const { return host_copies != kNone && up[space] >= first_link; }
  uint32_t first_link = 0;  // Resources from here on are links.
};
Resources FindResources(std::span<const DeviceFacts> devices, const CostModel& costs);

// One way to run a launch, or a part of one.
struct Option {
  uint32_t choice = 0;
  DeviceIndex device = 0;
  uint32_t silicon = 0;
  SpaceIndex space = kHostSpace;
  int64_t all_ns = kForever;   // Time with every lane of its silicon; kForever: it does not run so.
  int64_t lane_ns = kForever;  // Time with one lane.
  bool is_estimate = false;
  bool is_guess = false;  // Cost::is_guess.
  int64_t best_ns() const { return all_ns < lane_ns ? all_ns : lane_ns; }
};

struct OptionSet {
  uint32_t first = 0, count = 0;  // Range in Options::all().
};

std::pair<uint32_t, uint32_t> PortsOf(const graph::FlatGraph& flat, uint32_t node);

class Options {
 public:
  Options(const PlacementInput& input, const Resources& resources);

  // Finds the options of every node. Returns false when a node has none; `*unplaced` is then that node.
  bool Find(uint32_t* unplaced);
  const OptionSet& Of(uint32_t node) const { return sets_[set_of_[node]]; }
  std::span<const Option> all() const { return all_; }
  std::span<const Option> List(const OptionSet& set) const { return {all_.data() + set.first, set.count}; }
  uint64_t fallback_nodes() const { return fallback_nodes_; }
  // Upper limit of the time of any planned launch or transfer, so that a graph's times add up without overflow.
  int64_t worst_ns() const { return worst_ns_; }
  // The only device that any node may run on; kNone when there are several.
  uint32_t only_device() const { return only_device_; }

  // Returns the cost of a part of the node by `option`.
  Option Part(uint32_t node, const Option& option, const Box& box) const {
    return Price(node, option.choice, option.device, box);
  }
  OptionSet Add(const Option& option);
  // Drops options added beyond `count`.
  void Shrink(size_t count) { all_.resize(count); }

 private:
  bool IsLike(uint32_t a, uint32_t b) const;
  // Returns kNone when nothing can run the node.
  uint32_t Make(uint32_t node, std::span<const uint32_t> kept);
  std::vector<uint32_t> Keep(uint32_t node) const;
  bool CanRun(uint32_t node, const Candidate& candidate) const {
    return !input_.can_run || input_.can_run(node, candidate);
  }
  uint32_t FindLike(uint32_t node);
  uint32_t FindPin(uint32_t node, size_t* next);
  Option Price(uint32_t node, uint32_t choice, DeviceIndex device, const Box& box) const;

  const PlacementInput& input_;
  const Resources& resources_;
  const PortWork port_work_;
  const WorkModel& works_;
  std::vector<Option> all_;
  std::vector<OptionSet> sets_;
  std::vector<bool> is_fallback_;  // Indexed by set.
  std::vector<uint32_t> set_of_;   // Indexed by node.
  // Indexed by leaf: a node of each kind, and its set.
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> of_leaf_;
  uint64_t fallback_nodes_ = 0;
  int64_t worst_ns_ = 0;
  uint32_t only_device_ = kNone;
};

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_OPTIONS_H_
