// SPDX-License-Identifier: Apache-2.0
// The results of runs with a plan, and with another plan that competes with it for the same sizes.
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

// Belongs to the plan that runs next.
struct PlanReview {
  // Sources are numbered: placed anew; with several devices, placed anew with each device's share of a launch in one
  // piece, because copies may overlap launches less than planned; everything on one device, by device; then former
  // plans.
  scheduler::PlanJudge judge;
  bool seeks = false;                        // The judge wants a challenger; the next run that has time makes it.
  bool may_pin = false;                      // The plan may run launches where they have not been measured yet.
  bool is_challenger = false;                // This plan is the challenger; the other one is the champion.
  std::unique_ptr<Plan> other;               // Null when there is none, or no room for both.
  std::vector<scheduler::Task> other_tasks;  // Empty when there is none.
  std::array<std::vector<scheduler::Task>, scheduler::PlanJudge::kFormers> formers;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_REVIEW_H_
