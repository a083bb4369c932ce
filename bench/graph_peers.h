// SPDX-License-Identifier: Apache-2.0
// Other runtimes that run a Workload.
#ifndef HPVMD_BENCH_GRAPH_PEERS_H_
#define HPVMD_BENCH_GRAPH_PEERS_H_

#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "bench/registry.h"
#include "bench/workload.h"

namespace hpvm::bench {

class GraphPeer {
 public:
  virtual ~GraphPeer() = default;
  // Runs every task over fresh copies of the buffers and waits; the time without the copying.
  virtual StatusOr<Duration> Run() = 0;
  // What the last run left.
  virtual const std::vector<Elements>& buffers() const = 0;
};

// oneTBB's flow graph: one continue_node a task, edges made once. It has no coherence and no timing.
std::unique_ptr<GraphPeer> MakeTbbPeer(const Workload& workload);
// StarPU 1.3: one data handle a buffer, dependencies from access modes, tasks submitted at each run, as its model has
// it.
StatusOr<std::unique_ptr<GraphPeer>> MakeStarpuPeer(const Workload& workload);

// Ours beside both peers, in microseconds a node; every round's data is checked.
StatusOr<Measurement> MeasureWorkload(const Workload& workload, GraphPeer& ours, int rounds);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GRAPH_PEERS_H_
