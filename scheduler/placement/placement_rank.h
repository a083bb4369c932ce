// SPDX-License-Identifier: Apache-2.0
// Urgency of jobs and the time remaining after them: the priorities used by list scheduling.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_RANK_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_RANK_H_

#include <cstdint>
#include <vector>

#include "scheduler/placement/placement_problem.h"

namespace hpvm::scheduler::placing {

// Selects the mean or the minimum time of a job's options.
enum class Take : uint8_t { kMean, kLeast };

// Returns HEFT's upward rank: the longest path from a job's start to the end of the plan, with the selected times of
// its options and, if requested, mean times of transfers between the spaces of its options and its readers' options.
std::vector<int64_t> UpwardRanks(const Problem& problem, Take take, bool with_transfers = true);

// Returns PEFT's optimistic cost table, by job and space (one column per space, since processors of one space are
// equivalent to successors): the longest path from a job's end, run in that space, to the plan's end, when every later
// job runs where that is shortest and nothing waits for resources. Includes the return of outputs to host memory.
std::vector<int64_t> OptimisticCosts(const Problem& problem);

// Returns PEFT's rank: the mean of a job's row over its options' spaces; with `own`, plus the mean of its own times.
std::vector<int64_t> OptimisticRanks(const Problem& problem, const std::vector<int64_t>& costs, bool own);

// Returns, by job, a lower bound of the time between its end and the plan's.
std::vector<int64_t> Rests(const Problem& problem);

// Returns a lower bound of the makespan: the longest path at minimum costs.
int64_t PathBound(const Problem& problem);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_RANK_H_
