// SPDX-License-Identifier: Apache-2.0
// Chooses the candidate that runs each node of a plan: the scheduler's choice among candidates whose limits the
// launch meets.
#ifndef HPVMD_ENGINE_PLAN_PLACEMENT_H_
#define HPVMD_ENGINE_PLAN_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/costs.h"
#include "engine/plan.h"
#include "engine/prepared_graph.h"
#include "scheduler/task.h"

namespace hpvm::engine {

// Fails with kInvalidArgument when a node has more instances than any device can count.
Status CheckExtents(const PreparedGraph& prepared, const graph::FlatGraph& flat);
// Checks the sizes of a launch against the limits of a candidate's device. `choice` is an index in the leaf's
// candidates.
Status CheckLaunch(const PreparedGraph& prepared, const graph::FlatGraph& flat, uint32_t node, uint32_t choice);
// Explains why no candidate can run the node, by `why` or a better reason: the first candidate's reason, which is
// that of the preferred device, and differing reasons of others.
Status ExplainUnplaced(const PreparedGraph& prepared, const graph::FlatGraph& flat, uint32_t node, Status why);
// Fills in the plan's tasks, and, if it cuts launches, in `uncut` the tasks of the plan without cuts. `accesses` is
// null when launches must stay whole.
Status PlaceNodes(const PreparedGraph& prepared, const scheduler::AccessModel* accesses, const PlanCosts& costs,
                  const PlanRequest& request, Plan& plan, std::vector<scheduler::Task>* uncut);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_PLACEMENT_H_
