// SPDX-License-Identifier: Apache-2.0
// Runs a plan as often as asked for: its stages, with the memory of the run in its tables, and what the host has to do
// between repetitions.
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

// How far a run has come.
struct Progress {
  uint32_t repetitions = 0;  // That have ended.
  bool is_converged = false;
};

// What an iteration works with; borrowed.
struct IterationContext {
  const StageOptions& options;
  const PreparedGraph& graph;
  const Repetition& repetition;
  PortBindings ports;  // By PortImport::port: the root's, and what the plan for a rest is given besides.
  LaunchLog& log;
};

class Iterations {
 public:
  Iterations(const IterationContext& context, Plan& plan);
  // Until there have been `last` repetitions, or one has ended the run; more than `progress` says. Adds to the result's
  // device times and bytes. After a failure nothing is in flight, and the plan's timelines are of no more use.
  Status Run(uint32_t last, Progress* progress, RunResult* result);

  // Of the last repetition that ended.
  std::span<const NodeTiming> timings() const { return timings_[ended_ == 0 ? 0 : (ended_ - 1) % depth_]; }
  // By task: of all repetitions that ended.
  std::span<const TaskTotal> totals() const { return totals_; }
  // Of the one in which it failed.
  std::span<const NodeTiming> broken_timings() const;
  const StageRunner& stages() const { return stages_; }

 private:
  Status Import();
  Status SetScalars();
  void SwapTables();
  bool FindReadsBetween() const;
  Status RunBodies(uint32_t last, Progress* progress, RunResult* result);
  void EndUntil(uint64_t begun, Progress* progress, RunResult* result);
  Status ReadBetween(bool is_last, Progress* progress);
  const uint8_t* OnHost(uint32_t output) const;
  std::span<const std::vector<Buffer*>> tables() const;

  const IterationContext& context_;
  Plan& plan_;
  StageRunner stages_;
  std::vector<std::vector<Buffer*>> swapped_;  // The plan's tables for every second repetition.
  std::vector<NodeTiming> other_timings_;      // Of all repetitions in flight but one.
  std::vector<TaskTotal> totals_;              // By task.
  std::array<std::span<NodeTiming>, StageRunner::kPassesMax> timings_;  // By repetition, modulo depth_.
  bool reads_between_ = false;      // The host has something to do between repetitions.
  uint64_t depth_ = 1;              // Repetitions that are in flight at once.
  uint64_t first_pass_ = 0;         // Of the bodies.
  uint64_t begun_ = 0, ended_ = 0;  // Bodies.
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_ITERATIONS_H_
