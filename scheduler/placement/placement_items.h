// SPDX-License-Identifier: Apache-2.0
// Divides values into ranges that are made, read and moved separately, for graphs with nodes that are cut into parts.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_ITEMS_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_ITEMS_H_

#include <vector>

#include "scheduler/placement/placement_problem.h"

namespace hpvm::scheduler::placing {

// Fills items, reads and writes of a problem that already has its jobs and boxes. A value that no part touches is one
// item. A range that a writer leaves unchanged remains the same item.
void CutItems(const PlacementInput& input, const std::vector<bool>& is_part, Problem& problem);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_ITEMS_H_
