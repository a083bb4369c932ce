// SPDX-License-Identifier: Apache-2.0
// Launches cut into parts: over several devices in proportion to their speeds, or on one in equal parts, so that who
// reads them or brings them their data need not wait for all of it.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SPLIT_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SPLIT_H_

#include "scheduler/placement/placement_problem.h"
#include "scheduler/placement/placement_search.h"

namespace hpvm::scheduler::placing {

// Replaces `problem` and `best`, the plan without cuts, when cuts make a plan that is enough better. `options` gets
// those of the parts. PlacementInput::accesses is not null. Answers, by node, why those that are long stay whole; empty
// when nothing was looked at.
std::vector<Whole> ImproveByCuts(const PlacementInput& input, const Resources& resources, Options& options,
                                 Problem& problem, Best& best);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SPLIT_H_
