// SPDX-License-Identifier: Apache-2.0
// Heterogeneous Earliest Finish Time as published: H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-Effective and
// Low-Complexity Task Scheduling for Heterogeneous Computing", IEEE TPDS 13(3), 2002.
#ifndef HPVMD_SCHEDULER_TESTING_HEFT_H_
#define HPVMD_SCHEDULER_TESTING_HEFT_H_

#include <vector>

#include "scheduler/testing/peers.h"

namespace hpvm::scheduler {

// Returns, by task: its mean time plus the largest sum of a successor's rank and the mean communication with it.
std::vector<double> HeftRanks(const PeerProblem& problem);

// Places tasks by decreasing rank, each where it finishes first, in the first gap that holds it.
PeerSchedule Heft(const PeerProblem& problem);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_HEFT_H_
