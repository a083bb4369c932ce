// SPDX-License-Identifier: Apache-2.0
// Whether a memory plan is right: replays it with names of values in place of bytes.
//
// Shares no code with the planner. Every range of memory holds a name (which task wrote it in which iteration, which
// input it came from, zero, or nothing known); a task must find the right names in the ranges that it reads. The replay
// follows the order of the segments; that any other order which devices may choose gives the same is shown by a race
// detector: two accesses to the same bytes, one of them a write, must be ordered by waits and lanes (vector clocks),
// or, within one segment on a device that runs commands side by side, by the edges of OrderSteps.
#ifndef HPVMD_SCHEDULER_TESTING_PLAN_CHECKER_H_
#define HPVMD_SCHEDULER_TESTING_PLAN_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

struct CheckOptions {
  uint32_t bodies = 1;      // Iterations to replay; with carries, 3 show both sides of a swap.
  size_t faults_max = 16;   // Stops there.
  // Segments with at most so many steps are checked against OrderSteps, too (the cost grows with the square).
  uint32_t ordered_steps_max = 2048;
};

// A sentence for each fault; empty when the plan is right.
std::vector<std::string> CheckPlan(const ResidencyInput& input, const Residency& residency,
                                   const CheckOptions& options = {});

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_PLAN_CHECKER_H_
