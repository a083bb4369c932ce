// SPDX-License-Identifier: Apache-2.0
// Converts plans to the form that callers see: tasks in an order, with times.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_OUTPUT_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_OUTPUT_H_

#include <cstdint>

#include "scheduler/placement/placement_problem.h"
#include "scheduler/placement/placement_search.h"

namespace hpvm::scheduler::placing {

Task TaskOf(uint32_t node, const Option& option, const Box& box, int64_t start, int64_t end);

// Fills tasks, makespan, estimate counts and, if requested, transfers.
void FillPlacement(const PlacementInput& input, const Problem& problem, const Best& best, Placement& placement);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_OUTPUT_H_
