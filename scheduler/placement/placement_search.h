// SPDX-License-Identifier: Apache-2.0
// Searches for a good plan: makes plans in several ways, takes the one with the smallest makespan, and improves it by
// local search.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SEARCH_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SEARCH_H_

#include <cstdint>
#include <vector>

#include "scheduler/placement/placement_decode.h"
#include "scheduler/placement/placement_problem.h"

namespace hpvm::scheduler::placing {

struct SearchLimits {
  uint64_t effort = 0;  // Number of launches that all attempts together may plan; a few attempts are made in any case.
  uint64_t seed = 1;
};

// With each job pinned to its option in the plan, the other members reproduce the plan.
struct Best {
  DecodedPlan plan;
  std::vector<int64_t> priority;
  Width width = Width::kEither;
  size_t gaps_max = 0;
};

// The work is bounded by the effort plus a few attempts; deterministic.
void Search(const Problem& problem, const SearchLimits& limits, Best& best);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SEARCH_H_
