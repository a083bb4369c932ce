// SPDX-License-Identifier: Apache-2.0
// Heterogeneous Earliest Finish Time as published: H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-Effective and
// Low-Complexity Task Scheduling for Heterogeneous Computing", IEEE TPDS 13(3), 2002.
#ifndef HPVMD_SCHEDULER_TESTING_HEFT_H_
#define HPVMD_SCHEDULER_TESTING_HEFT_H_

#include <vector>

#include "scheduler/testing/peers.h"

namespace hpvm::scheduler {

// By task: the mean time, and the largest of the mean communication with a successor and its rank.
std::vector<double> HeftRanks(const PeerProblem& problem);

// By falling rank, each task where it finishes first, in the first gap that holds it.
PeerSchedule Heft(const PeerProblem& problem);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_HEFT_H_
