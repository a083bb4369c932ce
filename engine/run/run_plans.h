// SPDX-License-Identifier: Apache-2.0
// Manages the plans of a prepared graph: selects the plan for a run, makes plans, and makes one again when
// measurements promise a better one.
#ifndef HPVMD_ENGINE_RUN_RUN_PLANS_H_
#define HPVMD_ENGINE_RUN_RUN_PLANS_H_

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "engine/bindings.h"
#include "engine/engine.h"
#include "engine/prepared_graph.h"
#include "engine/run/run_repeat.h"

namespace hpvm::engine {

// A run's request for a plan. Borrows everything; inputs are bound in `ports`.
struct PlanQuery {
  const RunRequest& request;
  const Repetition& repetition;
  const PortBindings& ports;
  Duration left = kNever;  // Time until the run's deadline.
};

// Returns the plan for these sizes, which is then first in the graph's list: a plan from the list, or a new one,
// which evicts the least recently used ones. Fills RunRequest::shortage. The caller has the turn to run.
StatusOr<Plan*> FindPlan(PreparedGraph& graph, const PlanQuery& query);

// Call it after a run that succeeded, whose repetitions took `time` each: records the times of its launches, and
// decides whether the next run gets another plan (scheduler/review/plan_judge.h).
void ReviewPlan(PreparedGraph& graph, Plan& plan, std::span<const NodeTiming> timings, Duration time);

// Drops the plans that use a lost device, and better placements known to use it.
void DropPlansOf(PreparedGraph& graph, uint32_t device);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_PLANS_H_
