// SPDX-License-Identifier: Apache-2.0
// What runs have shown of a plan, and of those before it for the same sizes.
#ifndef HPVMD_ENGINE_PLAN_REVIEW_H_
#define HPVMD_ENGINE_PLAN_REVIEW_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "scheduler/task.h"

namespace hpvm {

struct PlanReview {
  bool is_stale = false;    // The next run makes another plan.
  bool is_settled = false;  // There will be no further plan: `best` it is, or this one.
  bool may_pin = false;     // It may run launches where they have not been measured yet.
  uint32_t replans = 0;     // Plans before this one.
  uint64_t runs = 0;        // Of this plan.
  uint64_t wait = 1;        // Runs before another plan is made.
  Duration time{0};         // One repetition of this plan, at best; 0: it has not run.
  // Whole graphs on one device, tried beside a plan over several, or one that takes longer than planned: what transfers
  // and devices that work side by side cost each other is modelled roughly only.
  static constexpr uint32_t kNoRival = 0xffffffffu;
  uint32_t rival = kNoRival;   // The device that everything of this plan runs on for that reason.
  uint32_t next_rival = 0;     // The device to try next.
  bool seeks_rival = false;    // The next plan is one.
  std::vector<scheduler::Task> best;  // The quickest placement before this plan's; empty: there was none.
  Duration best_time{0};
};

}  // namespace hpvm

#endif  // HPVMD_ENGINE_PLAN_REVIEW_H_
