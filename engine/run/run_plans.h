// SPDX-License-Identifier: Apache-2.0
// The plans that a prepared graph keeps: which one a run takes, when one is made, and when one is made again because
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

// A run that wants a plan. Borrows everything; inputs are bound in `ports`.
struct PlanQuery {
  const RunRequest& request;
  const Repetition& repetition;
  const PortBindings& ports;
  Duration left = kNever;  // Until the run's deadline.
};

// The plan for these sizes, first in the graph's list afterwards: the list's, or a new one, which pushes out those used
// longest ago. Fills RunRequest::shortage. Whose turn it is to run.
StatusOr<Plan*> FindPlan(PreparedGraph& graph, const PlanQuery& query);

// After a run that succeeded, of which one repetition took `time`: learns what its launches took, and decides whether
// the next run gets another plan (scheduler/review/plan_judge.h).
void ReviewPlan(PreparedGraph& graph, Plan& plan, std::span<const NodeTiming> timings, Duration time);

// Drops the plans that use a device, which is lost, and what is known of better ones that do.
void DropPlansOf(PreparedGraph& graph, uint32_t device);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_PLANS_H_
