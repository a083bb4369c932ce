// SPDX-License-Identifier: Apache-2.0
// CheckSchedule verifies, without any of the planner's code, that a placement can run as planned: everything once, in
// order, with its data where it is needed, and no resource used twice at once. For tests and benchmarks.
#ifndef HPVMD_SCHEDULER_TESTING_SCHEDULE_CHECKER_H_
#define HPVMD_SCHEDULER_TESTING_SCHEDULE_CHECKER_H_

#include "base/clock.h"
#include "base/status.h"
#include "scheduler/placement/placement.h"

namespace hpvm::scheduler {

// Returns the makespan: when the last task has ended and the last output is back in host memory. kInternal describes
// the fault, with the task. `placement` was made from `input` with wants_transfers.
StatusOr<Duration> CheckSchedule(const PlacementInput& input, const Placement& placement);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_SCHEDULE_CHECKER_H_
