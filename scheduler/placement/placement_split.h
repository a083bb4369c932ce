// SPDX-License-Identifier: Apache-2.0
// Cuts launches into parts: over several devices in proportion to their speeds, or into equal parts on one device, so
// that readers and transfers need not wait for the whole launch.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SPLIT_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SPLIT_H_

#include "scheduler/placement/placement_problem.h"
#include "scheduler/placement/placement_search.h"

namespace hpvm::scheduler::placing {

// Replaces `problem` and `best`, the plan without cuts, when cuts make a sufficiently better plan. Adds the parts'
// options to `options`. Requires PlacementInput::accesses. Returns, by node, why long launches were not cut; empty when
// no launch was considered.
std::vector<Whole> ImproveByCuts(const PlacementInput& input, const Resources& resources, Options& options,
                                 Problem& problem, Best& best);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SPLIT_H_
