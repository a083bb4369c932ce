// SPDX-License-Identifier: Apache-2.0
// What a run tells its caller beside the outputs: which node ran where and when, what kernels said, why it failed.
#ifndef HPVMD_ENGINE_RUN_RUN_RECORDS_H_
#define HPVMD_ENGINE_RUN_RUN_RECORDS_H_

#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "backends/contract/launch_log.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/prepared_graph.h"
#include "engine/run/run_stage.h"

namespace hpvm::engine {

// What a task's launches of several repetitions took together.
struct TaskTotal {
  int64_t ns = 0;
  uint32_t runs = 0;
};

// Adds what the devices say that the plan's launches of one repetition took: by task, and by EngineOptions::devices.
void CountTime(const Plan& plan, std::span<const NodeTiming> timings, std::span<TaskTotal> totals,
               std::vector<Duration>* device_time);

// Adds records of the plan's tasks, in its order, until there are `records_max`. `is_wanted`: by flat node; null: all
// are. Times count from `run_start`, or from the first launch if that is earlier by a device's clock. `totals`: by
// task; empty: there was the one repetition.
void AddRecords(const PreparedGraph& graph, Plan& plan, std::span<const NodeTiming> timings,
                std::span<const TaskTotal> totals, Time run_start, size_t records_max,
                const std::vector<bool>* is_wanted, std::vector<NodeRecord>* records);

// What the kernels said, by the paths of their nodes.
void FillLog(const PreparedGraph& graph, const Plan& plan, LaunchLog& said, RunLog* log);

// The failure for the caller: names the node, where a device said which. `stopped`: why the run had to stop, if it had.
Status Explain(const PreparedGraph& graph, const Plan& plan, const StageFailure& failure, const Status& stopped);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_RECORDS_H_
