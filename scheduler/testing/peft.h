// SPDX-License-Identifier: Apache-2.0
// Predict Earliest Finish Time as published: H. Arabnejad, J. G. Barbosa, "List Scheduling Algorithm for Heterogeneous
// Systems by an Optimistic Cost Table", IEEE TPDS 25(3), 2014.
#ifndef HPVMD_SCHEDULER_TESTING_PEFT_H_
#define HPVMD_SCHEDULER_TESTING_PEFT_H_

#include <vector>

#include "scheduler/testing/peers.h"

namespace hpvm::scheduler {

// Returns, by task and processor: the longest path from the task's end, run there, to the exit, each successor running
// where that is shortest; with mean communication between different processors.
std::vector<double> OptimisticCostTable(const PeerProblem& problem);

// Takes, among the ready tasks, the one with the largest mean of its row, and places it where the sum of its finish
// time and its entry in the table is least.
PeerSchedule Peft(const PeerProblem& problem);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_PEFT_H_
