// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SCHEDULER_TESTING_FOLLOW_H_
#define HPVMD_SCHEDULER_TESTING_FOLLOW_H_

#include <cstdint>
#include <span>

#include "scheduler/placement/placement.h"

namespace hpvm::scheduler {

// Tasks of a placement of the same graph, a peer's for example, in their order and where they are, with the times that
// the input's costs give. `fills_gaps`: a task may start before others that stand before it, as long as it delays none
// of them. Errors as Place's; kFailedPrecondition too when the tasks are no placement of the graph.
StatusOr<Placement> Follow(const PlacementInput& input, std::span<const Task> tasks, bool fills_gaps,
                           uint32_t* unplaced);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_FOLLOW_H_
