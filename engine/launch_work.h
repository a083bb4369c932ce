// SPDX-License-Identifier: Apache-2.0
// Computes the work of a plan's launches: evaluates the compiler's counts (compiler/ir/work.h) with the facts of a
// plan.
#ifndef HPVMD_ENGINE_LAUNCH_WORK_H_
#define HPVMD_ENGINE_LAUNCH_WORK_H_

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "backends/contract/device.h"
#include "graph/flatten.h"
#include "graph/graph.h"
#include "scheduler/cost/cost_model.h"

namespace hpvm::engine {

// Caches the counts of each kernel's last launches, because launches of a graph are alike and counting takes
// microseconds. Not thread-safe.
class WorkCache {
 public:
  // The number of operations of the whole launch, 0 when unknown, and an upper bound of the bytes that it moves.
  struct Count {
    double operations = 0, bytes_max = 0;
  };
  Count Of(const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node, const Executable& executable);

 private:
  // The inputs of a count.
  struct Entry {
    bool is_set = false;
    std::array<uint64_t, 3> extent{}, group{};
    std::vector<uint64_t> values;  // Bytes of ports, bits of scalars.
    Count count;
  };
  static constexpr size_t kEntries = 16;  // Indexed by hash; a launch replaces another one with the same hash.
  using Entries = std::array<Entry, kEntries>;

  static bool IsOf(const Entry& entry, const graph::FlatGraph& flat, uint32_t node);
  static void Set(Entry& entry, const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node,
                  const Artifact& artifact);

  std::unordered_map<const Executable*, std::unique_ptr<Entries>> kernels_;
};

// Borrows everything. Not thread-safe.
class LaunchWork final : public scheduler::WorkModel {
 public:
  LaunchWork(const graph::Graph& graph, const graph::FlatGraph& flat,
             const std::vector<std::vector<Executable*>>& executables, WorkCache& cache)
      : graph_(graph), flat_(flat), executables_(executables), cache_(cache), ports_(flat) {}
  scheduler::Work Of(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box) const override;

 private:
  const graph::Graph& graph_;
  const graph::FlatGraph& flat_;
  const std::vector<std::vector<Executable*>>& executables_;  // Indexed by leaf, then by choice.
  WorkCache& cache_;
  scheduler::PortWork ports_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_LAUNCH_WORK_H_
