// SPDX-License-Identifier: Apache-2.0
// Values as ranges that are made, read and moved on their own, for graphs of which nodes are cut into parts.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_ITEMS_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_ITEMS_H_

#include <vector>

#include "scheduler/placement/placement_problem.h"

namespace hpvm::scheduler::placing {

// Fills items, reads and writes of a problem whose jobs and boxes are there. Values that no part touches are one item.
// A range that a writer leaves as it was is the same item as before.
void CutItems(const PlacementInput& input, const std::vector<bool>& is_part, Problem& problem);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_ITEMS_H_
