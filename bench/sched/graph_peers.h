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
  // Runs every task over fresh copies of the buffers and waits; the time without the copying.
  virtual StatusOr<Duration> Run() = 0;
  // What the last run left.
  virtual const std::vector<Elements>& buffers() const = 0;
};

// oneTBB's flow graph: one continue_node a task, edges made once. It has no coherence and no timing.
// `workers`, here and below: threads, the calling one included; 0: as many as the machine has.
std::unique_ptr<GraphPeer> MakeTbbPeer(const Workload& workload, uint32_t workers = 0);
// StarPU 1.3: one data handle a buffer, dependencies from access modes, tasks submitted at each run, as its model has
// it. Its workers come beside the thread that submits. Peers of different numbers of workers cannot live at the same
// time.
StatusOr<std::unique_ptr<GraphPeer>> MakeStarpuPeer(const Workload& workload, uint32_t workers = 0);

// Ours beside both peers, in microseconds a node; every round's data is checked.
StatusOr<Measurement> MeasureWorkload(const Workload& workload, GraphPeer& ours, int rounds, uint32_t workers = 0);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SCHED_GRAPH_PEERS_H_
