// SPDX-License-Identifier: Apache-2.0
// Measures how long an engine's kernels and transfers take, and predicts the next ones from that.
//
// An engine has one CostStore: histories (scheduler/cost/cost_history.h) by kernel and device, shared by graphs that
// use the same kernel. A prepared graph has one GraphCosts, which maps each candidate of each leaf to its history. A
// plan is made from a PlanCosts, a copy that does not change while it is used; after runs, Feed adds the devices'
// measurements.
//
// Histories of kernels that the compiler keeps (Artifact::name) are kept with them, through TuningStore, and come
// back with the artifact. A returned history is checked; it influences only performance.
//
// Threads: CostStore's methods are thread-safe. The other methods of GraphCosts are called by the thread that
// prepares the graph, or that has the turn to run it.
#ifndef HPVMD_ENGINE_COSTS_H_
#define HPVMD_ENGINE_COSTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "base/clock.h"
#include "compiler/api/tuning_record.h"
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
  uint32_t device = 0;     // Index in the graph's devices.
  uint64_t instances = 0;  // Covers launches of at most this many instances, and more than half as many.
  double estimate_ns = 0;  // Estimate from the code and the device's facts.
  double measured_ns = 0;  // Mean; 0 when never measured.
  uint64_t samples = 0;
  double error = 0;  // Mean of |predicted - measured| / measured; 0 before the second sample.
};

struct TransferCostRecord {
  static constexpr uint32_t kHost = 0xffffffffu;
  uint32_t source = kHost, target = kHost;  // Indices of devices, or kHost.
  double start_ns = 0, bytes_per_second = 0;
  bool is_estimate = true;
};

// Predicts the times of a plan's launches. Owns all of its data except the graph; not thread-safe.
class PlanCosts : public scheduler::CostModel, public scheduler::WorkModel {
 public:
  // Returns launches that must run by another candidate than the quickest one, to measure it. Few, in rising order of
  // node.
  virtual std::span<const scheduler::PlacementPin> pins() const = 0;
};

// The result of Feed.
struct CostReview {
  // For the launches examined: the time that the plan's choices were expected to take, the time they took, and the
  // time that the best candidates are now expected to take.
  double expected_ns = 0, measured_ns = 0, best_ns = 0;
  uint64_t first_samples = 0;  // Number of launches for which no similar launch had been measured.
  // True when all launches examined ran as they will continue to run (NodeTiming::is_settled).
  bool is_settled = true;
  bool wants_samples = false;  // True when a new plan may pin launches (`may_pin` of ForPlan).
  // True when a new plan promises to be better: other candidates now look clearly better and the data behind the plan
  // has changed, or samples are wanted. The caller still limits how often it replans.
  bool should_replan = false;
};

// The position at which a plan's next Feed continues.
struct FeedState {
  uint64_t next = 0;      // Index of a task.
  uint64_t feeds = 0;     // Number of feeds so far.
  int64_t credit_ns = 0;  // Time that may still be spent on feeding.
};

class GraphCosts {
 public:
  // For the candidates of `prepared`. Checked graphs are not measured, because checks are much slower than runs.
  GraphCosts(std::shared_ptr<CostStore> store, const PreparedGraph& prepared);
  ~GraphCosts();
  GraphCosts(const GraphCosts&) = delete;
  GraphCosts& operator=(const GraphCosts&) = delete;

  // Returns the present predictions. `prepared` (this object's graph) and `flat` are borrowed for the result's life.
  // Measures transfers to candidates' devices that were not measured yet: a few milliseconds per device, once per
  // engine. `may_pin` requests samples of candidates that may be better than the otherwise chosen ones.
  std::unique_ptr<PlanCosts> ForPlan(const PreparedGraph& prepared, const graph::FlatGraph& flat, bool may_pin);

  // Call it after a run that succeeded and took `run`. `timings` is indexed by task; launches without a time of their
  // own are skipped. After a plan's first runs, examines all its launches, at most kFedLaunchesMax; later as many as
  // take about a hundredth of the run, different ones each time, without allocating. `state` belongs to the plan.
  CostReview Feed(const PreparedGraph& prepared, const graph::FlatGraph& flat, std::span<const scheduler::Task> tasks,
                  std::span<const NodeTiming> timings, Duration run, FeedState* state);

  struct Kernels;  // Defined in costs.cc.

 private:
  friend bool ListKernels(const PreparedGraph& prepared, size_t most, std::vector<KernelCostRecord>* kernels);
  const std::shared_ptr<CostStore> store_;  // Shared, because a graph may outlive the engine.
  std::unique_ptr<Kernels> kernels_;
};

inline constexpr size_t kFedLaunchesMax = 1024;

// Devices are borrowed for the store's life; `keeper` and `clock` as long as anything is run or prepared. With
// `measures_transfers`, ForPlan copies a little to and from devices; otherwise their facts determine transfer times.
std::shared_ptr<CostStore> CreateCostStore(std::span<Device* const> devices, bool measures_transfers,
                                           TuningStore& keeper, const Clock& clock);
// Lists the costs of a graph's kernels (devices are indices in Engine::devices). Lists at most `most` records;
// returns false when there are more. Thread-safe, also while the graph runs.
bool ListKernels(const PreparedGraph& prepared, size_t most, std::vector<KernelCostRecord>* kernels);
// Lists the transfers of the engine's devices, to and from host memory. Thread-safe.
std::vector<TransferCostRecord> ListTransfers(const CostStore& store);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_COSTS_H_
