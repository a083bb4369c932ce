// SPDX-License-Identifier: Apache-2.0
// Other runtimes that run a Workload.
#ifndef HPVMD_BENCH_SCHED_GRAPH_PEERS_H_
#define HPVMD_BENCH_SCHED_GRAPH_PEERS_H_

#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "bench/registry.h"
#include "bench/workload.h"

namespace hpvm::bench {

class GraphPeer {
 public:
  virtual ~GraphPeer() = default;
  // Runs every task over fresh copies of the buffers and waits; returns the time without the copying.
  virtual StatusOr<Duration> Run() = 0;
  // Returns the buffers after the last run.
  virtual const std::vector<Elements>& buffers() const = 0;
};

// oneTBB's flow graph: one continue_node per task, edges made once. It has no coherence and no timing. `workers`,
// here and below, is the number of threads including the calling one; as many as the machine has when 0.
std::unique_ptr<GraphPeer> MakeTbbPeer(const Workload& workload, uint32_t workers = 0);
// StarPU 1.3: one data handle per buffer, dependencies from access modes, tasks submitted in each run, as its model
// requires. The submitting thread comes in addition to its workers. Peers of different numbers of workers cannot
// exist at the same time.
StatusOr<std::unique_ptr<GraphPeer>> MakeStarpuPeer(const Workload& workload, uint32_t workers = 0);

// Measures ours beside both peers, in microseconds per node; checks every round's data.
StatusOr<Measurement> MeasureWorkload(const Workload& workload, GraphPeer& ours, int rounds, uint32_t workers = 0);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SCHED_GRAPH_PEERS_H_
