// SPDX-License-Identifier: Apache-2.0
// What an engine has measured of how long kernels and transfers take, and what it therefore expects of the next ones.
//
// One CostStore an engine: histories (scheduler/cost/cost_history.h) by kernel and device, shared by graphs that use
// the same kernel. One GraphCosts a prepared graph: which history belongs to which candidate of which leaf. A plan is
// made from a PlanCosts, a copy that does not change while it is used; after runs, Feed adds what the devices measured.
//
// Histories of kernels that the compiler keeps (Artifact::name) are kept with them, through LearntStore, and come back
// with the artifact. What comes back is checked; it only says what is fast.
//
// Threads: CostStore's methods from any; the rest of GraphCosts from whoever prepares the graph,
// or whose turn it is to run it.
#ifndef HPVMD_ENGINE_COSTS_H_
#define HPVMD_ENGINE_COSTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "base/clock.h"
#include "compiler/api/learnt.h"
#include "graph/flatten.h"
#include "graph/graph.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/placement/placement.h"
#include "scheduler/task.h"

namespace hpvm::engine {

class CostStore;  // engine/cost_store.h.
class PreparedGraph;

// One kernel on one device, for launches of about one size.
struct KernelCostRecord {
  std::string kernel;      // "module/entry".
  uint32_t device = 0;     // In the graph's devices.
  uint64_t instances = 0;  // Launches of up to so many, and more than half of them.
  double estimate_ns = 0;  // From the code and the device's facts.
  double measured_ns = 0;  // Mean; 0: never measured.
  uint64_t samples = 0;
  double error = 0;  // Mean of |predicted - measured| / measured; 0 before the second sample.
};

struct TransferCostRecord {
  static constexpr uint32_t kHost = 0xffffffffu;
  uint32_t source = kHost, target = kHost;  // Devices.
  double start_ns = 0, bytes_per_second = 0;
  bool is_estimate = true;
};

// Who expects what of a plan's launches. Owns what it answers from but for the graph; one thread at a time.
class PlanCosts : public scheduler::CostModel, public scheduler::WorkModel {
 public:
  // Launches that are to run by another candidate than the quickest, so that it is measured. Few, by rising node.
  virtual std::span<const scheduler::PlacementPin> pins() const = 0;
};

// What Feed found.
struct CostReview {
  // Of the launches looked at: what the plan's choices were expected to take, what they took, and what the best
  // candidates are now expected to take.
  double expected_ns = 0, measured_ns = 0, best_ns = 0;
  uint64_t first_samples = 0;  // Launches of which nothing like it had been measured.
  // All launches looked at ran as they will go on to run (NodeTiming::is_settled).
  bool is_settled = true;
  bool wants_samples = false;  // A new plan may pin something (ForPlan's `may_pin`).
  // A new plan promises to be better: candidates that were not chosen now look clearly better while what the plan was
  // made from has changed, or samples are wanted. Whoever asks still limits how often.
  bool should_replan = false;
};

// Where a plan's next Feed goes on.
struct FeedState {
  uint64_t next = 0;      // Task.
  uint64_t feeds = 0;     // So far.
  int64_t credit_ns = 0;  // What may still be spent on feeding.
};

class GraphCosts {
 public:
  // For the candidates of `prepared`. Of checked graphs nothing is measured: checks are much slower than runs.
  GraphCosts(std::shared_ptr<CostStore> store, const PreparedGraph& prepared);
  ~GraphCosts();
  GraphCosts(const GraphCosts&) = delete;
  GraphCosts& operator=(const GraphCosts&) = delete;

  // What is known now. `prepared` (whose this is) and `flat` are borrowed for the result's life. Measures transfers to
  // devices that candidates name and whose transfers were not measured yet: a few milliseconds each, once an engine.
  // `may_pin`: asks for samples of candidates that may be better than what would be chosen.
  std::unique_ptr<PlanCosts> ForPlan(const PreparedGraph& prepared, const graph::FlatGraph& flat, bool may_pin);

  // After a run that succeeded and took `run`. `timings` is by task; launches without a time of their own are left
  // out. Looks at all of a small plan after its first runs, at most at kFedLaunchesMax launches, and later at as
  // many as take about a hundredth of the run, others each time. Allocates nothing then. `state` is the plan's.
  CostReview Feed(const PreparedGraph& prepared, const graph::FlatGraph& flat, std::span<const scheduler::Task> tasks,
                  std::span<const NodeTiming> timings, Duration run, FeedState* state);

  struct Kernels;  // In costs.cc.

 private:
  friend bool ListKernels(const PreparedGraph& prepared, size_t most, std::vector<KernelCostRecord>* kernels);
  const std::shared_ptr<CostStore> store_;  // Shared: a graph that somebody holds may outlive the engine.
  std::unique_ptr<Kernels> kernels_;
};

inline constexpr size_t kFedLaunchesMax = 1024;

// Devices are borrowed for the store's life; `keeper` and `clock` for as long as anything is run or prepared.
// `measures_transfers`: ForPlan copies a little to and from devices, else their facts say what a transfer takes.
std::shared_ptr<CostStore> CreateCostStore(std::span<Device* const> devices, bool measures_transfers,
                                           LearntStore& keeper, const Clock& clock);
// What is known of a graph's kernels (devices are indices in Engine::devices). At most `most`; false when there are
// more. Any thread, also while the graph runs.
bool ListKernels(const PreparedGraph& prepared, size_t most, std::vector<KernelCostRecord>* kernels);
// Of the engine's devices, to and from host memory. Any thread.
std::vector<TransferCostRecord> ListTransfers(const CostStore& store);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_COSTS_H_
