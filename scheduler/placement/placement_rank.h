// SPDX-License-Identifier: Apache-2.0
// How urgent jobs are, and what still follows them: the priorities that list scheduling takes.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_RANK_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_RANK_H_

#include <cstdint>
#include <vector>

#include "scheduler/placement/placement_problem.h"

namespace hpvm::scheduler::placing {

// The mean time of a job's options, or the least.
enum class Take : uint8_t { kMean, kLeast };

// HEFT's upward rank: the longest way from a job's start to the end of the plan, with such times of its options and, if
// asked for, the mean times of transfers between the spaces that its options and its readers' have.
std::vector<int64_t> UpwardRanks(const Problem& problem, Take take, bool with_transfers = true);

// PEFT's optimistic cost table, by job and space (one column a space, since processors of one space are alike to what
// follows): the longest way from a job's end, run in that space, to the plan's end, when every job after it runs where
// that is shortest and nothing waits for resources. Includes the way home of what the caller gets.
std::vector<int64_t> OptimisticCosts(const Problem& problem);

// PEFT's rank: the mean of a job's row over its options' spaces; with `own`, and the mean of its own times.
std::vector<int64_t> OptimisticRanks(const Problem& problem, const std::vector<int64_t>& costs, bool own);

// By job: at least so long passes between its end and the plan's.
std::vector<int64_t> Rests(const Problem& problem);

// No plan ends sooner: the longest path at least costs.
int64_t PathBound(const Problem& problem);

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_RANK_H_
