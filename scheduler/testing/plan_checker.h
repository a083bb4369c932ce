// SPDX-License-Identifier: Apache-2.0
// CheckPlan verifies a memory plan by replaying it with names of values in place of bytes.
//
// It shares no code with the planner. Every range of memory holds a name (the task that wrote it in some iteration, the
// input that it came from, zero, or unknown); a task must find the right names in the ranges that it reads. The replay
// follows the order of the segments; a race detector shows that any other order chosen by the devices gives the same
// result: two accesses to the same bytes, at least one of them a write, must be ordered by waits and lanes (vector
// clocks), or, within one segment on a device that runs commands concurrently, by the edges of OrderSteps.
#ifndef HPVMD_SCHEDULER_TESTING_PLAN_CHECKER_H_
#define HPVMD_SCHEDULER_TESTING_PLAN_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

struct CheckOptions {
  uint32_t bodies = 1;      // Number of iterations to replay; with carries, 3 show both sides of a swap.
  size_t faults_max = 16;   // The check stops at this number.
  // Segments with at most this many steps are also checked against OrderSteps (the cost is quadratic).
  uint32_t ordered_steps_max = 2048;
};

// Returns a sentence for each fault; empty when the plan is right.
std::vector<std::string> CheckPlan(const ResidencyInput& input, const Residency& residency,
                                   const CheckOptions& options = {});

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_PLAN_CHECKER_H_
