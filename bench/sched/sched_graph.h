// SPDX-License-Identifier: Apache-2.0
// Graphs of `hpvm-bench sched real/ memory/`: documents over the kernels of bench/gpu/wasm.c, with memory for their
// inputs and outputs.
#ifndef HPVMD_BENCH_SCHED_SCHED_GRAPH_H_
#define HPVMD_BENCH_SCHED_SCHED_GRAPH_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/cpu/cpu_case.h"
#include "bench/local_engine.h"

namespace hpvm::bench {

// One port of a node, with the array that it holds.
struct GraphPort {
  std::string name;
  Access access = Access::kIn;
  ElementType type = ElementType::kF32;
  uint64_t count = 0;
  std::string from;  // For in and inout: a graph input's name, or "node.port".
  std::string to;    // For out and inout: a graph output's name; none when empty.
};

struct GraphNode {
  std::string name, entry;
  std::vector<GraphPort> ports;
  std::vector<CpuScalar> scalars;  // After the ports, in the kernel's order.
  std::array<uint64_t, 3> extent{1, 1, 1};
  std::string device;  // The only device that may run it; any when empty.
};

struct GraphInput {
  ElementType type = ElementType::kF32;
  uint64_t count = 0;
  uint8_t* data = nullptr;  // Borrowed.
};

// A graph with its inputs. Outputs have memory of their own, made when it is prepared.
struct BenchGraph {
  std::map<std::string, GraphInput> inputs;
  std::vector<GraphNode> nodes;

  std::string Document() const;
};

// A graph that an engine has prepared, with its bindings.
class BenchRun {
 public:
  static StatusOr<BenchRun> Prepare(LocalEngine& engine, const BenchGraph& graph);
  // Returns the seconds of one run, from the caller's memory to the caller's memory.
  StatusOr<double> Run();
  const engine::RunResult& last() const { return last_; }
  // Returns the values of the last run, keyed by the output's name.
  const std::map<std::string, PageMemory>& outputs() const { return outputs_; }

 private:
  LocalEngine* engine_ = nullptr;  // Borrowed.
  std::shared_ptr<engine::PreparedGraph> graph_;
  engine::RunRequest request_;
  std::map<std::string, PageMemory> outputs_;
  engine::RunResult last_;
  // Blocks of inputs and outputs, which devices may pin; closed before the memory is freed.
  struct Blocks {
    Blocks() = default;
    Blocks(Blocks&&) = default;
    Blocks& operator=(Blocks&&) = default;
    ~Blocks() {
      for (const std::shared_ptr<HostBlock>& block : all) {
        block->Close();
      }
    }
    std::vector<std::shared_ptr<HostBlock>> all;
  } blocks_;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SCHED_SCHED_GRAPH_H_
