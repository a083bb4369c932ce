// SPDX-License-Identifier: Apache-2.0
// Whether a placement could run as it says, decided without any of the planner's code: everything once, in order, with
// its data where it needs it, and nothing in two places at a time. For tests and benchmarks.
#ifndef HPVMD_SCHEDULER_TESTING_SCHEDULE_CHECKER_H_
#define HPVMD_SCHEDULER_TESTING_SCHEDULE_CHECKER_H_

#include "base/clock.h"
#include "base/status.h"
#include "scheduler/placement/placement.h"

namespace hpvm::scheduler {

// The makespan: when the last task has ended and the last output is back in host memory. kInternal says what is wrong,
// with the task. `placement` was made from `input` with wants_transfers.
StatusOr<Duration> CheckSchedule(const PlacementInput& input, const Placement& placement);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_SCHEDULE_CHECKER_H_
