// SPDX-License-Identifier: Apache-2.0
// Reports a run's details beside its outputs: which node ran where and when, the kernels' output, and reasons of
// failures.
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

// The total time of a task's launches in several repetitions.
struct TaskTotal {
  int64_t ns = 0;
  uint32_t runs = 0;
};

// Adds the devices' times of the plan's launches in one repetition to `totals` (by task) and `device_time` (indexed
// as EngineOptions::devices).
void CountTime(const Plan& plan, std::span<const NodeTiming> timings, std::span<TaskTotal> totals,
               std::vector<Duration>* device_time);

// Adds records of the plan's tasks, in order, until there are `records_max`. `is_wanted` is indexed by flat node;
// null means all. Times count from `run_start`, or from the first launch when that is earlier by a device's clock.
// `totals` is indexed by task; empty when there was only one repetition.
void AddRecords(const PreparedGraph& graph, Plan& plan, std::span<const NodeTiming> timings,
                std::span<const TaskTotal> totals, Time run_start, size_t records_max,
                const std::vector<bool>* is_wanted, std::vector<NodeRecord>* records);

// Returns the path of the node of a plan's task; empty when there is no such task.
std::string PathOfTask(const PreparedGraph& graph, const Plan& plan, uint32_t task);

// Fills the log with the kernels' output, by the paths of their nodes.
void FillLog(const PreparedGraph& graph, const Plan& plan, LaunchLog& said, RunLog* log);

// Returns the failure for the caller; names the node when a device reported it. `stopped` is the reason why the run
// had to stop, if any.
Status Explain(const PreparedGraph& graph, const Plan& plan, const StageFailure& failure, const Status& stopped);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_RECORDS_H_
