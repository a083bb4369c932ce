// SPDX-License-Identifier: Apache-2.0
// Runs a plan as often as requested: executes its stages with the run's memory in its tables, and does the host's
// work between repetitions.
#ifndef HPVMD_ENGINE_RUN_RUN_ITERATIONS_H_
#define HPVMD_ENGINE_RUN_RUN_ITERATIONS_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "base/status.h"
#include "engine/bindings.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/prepared_graph.h"
#include "engine/run/run_records.h"
#include "engine/run/run_repeat.h"
#include "engine/run/run_stage.h"

namespace hpvm::engine {

// The progress of a run.
struct Progress {
  uint32_t repetitions = 0;  // Number of repetitions that have ended.
  bool is_converged = false;
};

// The context of the iterations; borrowed.
struct IterationContext {
  const StageOptions& options;
  const PreparedGraph& graph;
  const Repetition& repetition;
  PortBindings ports;  // Indexed by PortImport::port: the root's ports, and the additional bindings of a plan for a
                       // remainder.
  LaunchLog& log;
};

class Iterations {
 public:
  Iterations(const IterationContext& context, Plan& plan);
  // Runs until there have been `last` repetitions, which is more than in `progress`, or one has ended the run. Adds
  // to the result's device times and bytes. After a failure nothing is in flight, and the plan's timelines are
  // unusable.
  Status Run(uint32_t last, Progress* progress, RunResult* result);

  // Returns the timings of the last repetition that ended.
  std::span<const NodeTiming> timings() const { return timings_[ended_ == 0 ? 0 : (ended_ - 1) % depth_]; }
  // Returns, indexed by task, the totals of all repetitions that ended.
  std::span<const TaskTotal> totals() const { return totals_; }
  // Returns the timings of the repetition that failed.
  std::span<const NodeTiming> broken_timings() const;
  const StageRunner& stages() const { return stages_; }

 private:
  Status Import();
  Status SetScalars();
  void SwapTables();
  bool FindReadsBetween() const;
  Status RunBodies(uint32_t last, Progress* progress, RunResult* result);
  void EndUntil(uint64_t begun, Progress* progress, RunResult* result);
  Status CheckDeviceTime(const RunResult& result) const;
  Status ReadBetween(bool is_last, Progress* progress);
  const uint8_t* OnHost(uint32_t output) const;
  std::span<const std::vector<Buffer*>> tables() const;

  const IterationContext& context_;
  Plan& plan_;
  StageRunner stages_;
  std::vector<std::vector<Buffer*>> swapped_;  // The plan's tables for every second repetition.
  std::vector<NodeTiming> other_timings_;      // Timings of all repetitions in flight except one.
  std::vector<TaskTotal> totals_;              // Indexed by task.
  std::array<std::span<NodeTiming>, StageRunner::kPassesMax> timings_;  // Indexed by repetition modulo depth_.
  bool reads_between_ = false;                                          // The host has work to do between repetitions.
  uint64_t depth_ = 1;                                                  // Number of repetitions in flight at once.
  uint64_t first_pass_ = 0;                                             // First pass of the bodies.
  uint64_t begun_ = 0, ended_ = 0;                                      // Numbers of bodies.
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_ITERATIONS_H_
