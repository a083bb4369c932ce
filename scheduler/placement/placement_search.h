// SPDX-License-Identifier: Apache-2.0
// Which plan to take: several ways to make one, the best of them by their makespan, and a look around it.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SEARCH_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SEARCH_H_

#include <cstdint>
#include <vector>

#include "scheduler/placement/placement_decode.h"
#include "scheduler/placement/placement_problem.h"

namespace hpvm::scheduler::placing {

struct SearchLimits {
  uint64_t effort = 0;  // Launches that may be planned, all attempts together; a few attempts are made in any case.
  uint64_t seed = 1;
};

// With each job pinned to its option in the plan, the rest makes the same plan again.
struct Best {
  Plan plan;
  std::vector<int64_t> priority;
  Width width = Width::kEither;
  size_t gaps_max = 0;
};

// The work done is bounded by the effort and some attempts more; deterministic.
void Search(const Problem& problem, const SearchLimits& limits, Best& best);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_SEARCH_H_
