// SPDX-License-Identifier: Apache-2.0
// How much work a plan's launches are: what the compiler counted (compiler/ir/work.h) for what a plan knows of them.
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

// Counts of the last launches of each kernel: those of a graph are alike, and counting takes microseconds. One thread
// at a time.
class WorkCache {
 public:
  // Operations of the whole launch, 0 when they are not known, and the bytes that it can move at most.
  struct Count {
    double operations = 0, bytes_max = 0;
  };
  Count Of(const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node, const Executable& executable);

 private:
  // What a count depends on.
  struct Entry {
    bool is_set = false;
    std::array<uint64_t, 3> extent{}, group{};
    std::vector<uint64_t> values;  // Bytes of ports, bits of scalars.
    Count count;
  };
  static constexpr size_t kEntries = 16;  // By hash; a launch takes the place of another one with the same.
  using Entries = std::array<Entry, kEntries>;

  static bool IsOf(const Entry& entry, const graph::FlatGraph& flat, uint32_t node);
  static void Set(Entry& entry, const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node,
                  const Artifact& artifact);

  std::unordered_map<const Executable*, std::unique_ptr<Entries>> kernels_;
};

// Everything is borrowed. One thread at a time.
class LaunchWork final : public scheduler::WorkModel {
 public:
  LaunchWork(const graph::Graph& graph, const graph::FlatGraph& flat,
             const std::vector<std::vector<Executable*>>& executables, WorkCache& cache)
      : graph_(graph), flat_(flat), executables_(executables), cache_(cache), ports_(flat) {}
  scheduler::Work Of(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box) const override;

 private:
  const graph::Graph& graph_;
  const graph::FlatGraph& flat_;
  const std::vector<std::vector<Executable*>>& executables_;  // By leaf, by choice.
  WorkCache& cache_;
  scheduler::PortWork ports_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_LAUNCH_WORK_H_
