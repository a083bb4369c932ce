// SPDX-License-Identifier: Apache-2.0
// Which candidate runs each node of a plan: the scheduler's choice among those whose limits the launch keeps.
#ifndef HPVMD_ENGINE_PLAN_PLACE_H_
#define HPVMD_ENGINE_PLAN_PLACE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/costs.h"
#include "engine/plan.h"
#include "engine/prepared_graph.h"
#include "scheduler/task.h"

namespace hpvm::engine {

// kInvalidArgument when a node has more instances than anything can count.
Status CheckExtents(const PreparedGraph& prepared, const graph::FlatGraph& flat);
// Whether the sizes of a launch keep to the limits of a candidate's device. `choice` is in the leaf's candidates.
Status CheckLaunch(const PreparedGraph& prepared, const graph::FlatGraph& flat, uint32_t node, uint32_t choice);
// Why no candidate can run the node, as `why` or better: the first candidate's reason, being that of the device
// preferred, and those of others that differ.
Status ExplainUnplaced(const PreparedGraph& prepared, const graph::FlatGraph& flat, uint32_t node, Status why);
// Fills in the plan's tasks, and in `uncut` those of the plan without cuts where there are cuts. `accesses` is null
// when launches must stay whole.
Status PlaceNodes(const PreparedGraph& prepared, const scheduler::AccessModel* accesses, const PlanCosts& costs,
                  const PlanRequest& request, Plan& plan, std::vector<scheduler::Task>* uncut);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_PLACE_H_
