// SPDX-License-Identifier: Apache-2.0
// Random graphs with a placement, ranges and budgets, as input for memory planning. Everything is determined by the
// seed.
#ifndef HPVMD_SCHEDULER_TESTING_RANDOM_PLAN_H_
#define HPVMD_SCHEDULER_TESTING_RANDOM_PLAN_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

// Builds flat graphs by hand.
struct FlatBuilder {
  graph::FlatGraph flat;
  uint32_t inputs = 0;

  graph::FlatValueId Input(uint64_t bytes);
  // Starts a node; calls for its ports follow.
  void Node();
  void In(graph::FlatValueId value);
  graph::FlatValueId Out(uint64_t bytes) { return Make(graph::Access::kOut, {}, bytes); }
  graph::FlatValueId InOut(graph::FlatValueId value) {
    return Make(graph::Access::kInOut, value, flat.values[value.index].bytes);
  }
  void Output(graph::FlatValueId value) { flat.outputs.push_back(value); }
  graph::FlatValueId Make(graph::Access access, graph::FlatValueId in, uint64_t bytes);
};

// Accesses from a table; whole buffers where there is no entry.
class TableAccesses final : public AccessModel {
 public:
  explicit TableAccesses(const graph::FlatGraph& flat) : whole_(flat) {}
  // Parts of a node are identified by the first instance of their box in dimension 0.
  void Set(graph::FlatNodeId node, uint64_t part, uint32_t port, const PortAccess& access) {
    table_[{node.index, part, port}] = access;
  }
  PortAccess Of(graph::FlatNodeId node, uint32_t choice, const Box& box, uint32_t port) const override;
  bool MayCut(graph::FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const override {
    return false;
  }

 private:
  WholeBuffers whole_;
  std::map<std::tuple<uint32_t, uint64_t, uint32_t>, PortAccess> table_;
};

struct RandomPlanOptions {
  uint64_t nodes_max = 40;
  bool has_ranges = true;    // Parts of launches, partial reads and writes.
  bool has_budgets = false;  // Spaces that hold only a part of the live values; a disk.
  bool has_carries = false;
};

struct RandomPlan {
  RandomPlan(uint64_t seed, const RandomPlanOptions& options);
  // The result refers to members of this object, which must not be moved.
  ResidencyInput input() const;
  RandomPlan(const RandomPlan&) = delete;
  RandomPlan& operator=(const RandomPlan&) = delete;

  FlatBuilder builder;
  std::vector<DeviceFacts> devices;
  std::vector<SpaceFacts> spaces;
  std::vector<Task> tasks;
  TableAccesses accesses;
  std::vector<Carry> carries;
  std::vector<uint32_t> on_host;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_RANDOM_PLAN_H_
