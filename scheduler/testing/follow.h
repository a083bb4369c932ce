// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SCHEDULER_TESTING_FOLLOW_H_
#define HPVMD_SCHEDULER_TESTING_FOLLOW_H_

#include <cstdint>
#include <span>

#include "scheduler/placement/placement.h"

namespace hpvm::scheduler {

// Schedules the tasks of a placement of the same graph (for example a peer's) in their order and on their devices, with
// times from the input's costs. `fills_gaps`: a task may start before others that precede it, as long as it delays none
// of them. Errors as for Place; also kFailedPrecondition when the tasks are not a placement of the graph.
StatusOr<Placement> Follow(const PlacementInput& input, std::span<const Task> tasks, bool fills_gaps,
                           uint32_t* unplaced);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_FOLLOW_H_
