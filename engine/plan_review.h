// SPDX-License-Identifier: Apache-2.0
// What runs have shown of a plan, and of another one that competes with it for the same sizes.
#ifndef HPVMD_ENGINE_PLAN_REVIEW_H_
#define HPVMD_ENGINE_PLAN_REVIEW_H_

#include <array>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "scheduler/review/plan_judge.h"
#include "scheduler/task.h"

namespace hpvm::engine {

struct Plan;

// Kept by the plan that runs next.
struct PlanReview {
  // By source: placed anew; of several devices, placed anew with each one's share of a launch in one piece, as copies
  // may run beside launches worse than planned; everything on a device, by device; then plans of before.
  scheduler::PlanJudge judge;
  bool seeks = false;           // The judge wants a challenger, which the next run that has the time makes.
  bool may_pin = false;         // It may run launches where they have not been measured yet.
  bool is_challenger = false;   // This plan is; then the other one is the champion.
  std::unique_ptr<Plan> other;  // Null: there is none, or there is no room for both.
  std::vector<scheduler::Task> other_tasks;  // Empty: there is none.
  std::array<std::vector<scheduler::Task>, scheduler::PlanJudge::kFormers> formers;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_REVIEW_H_
