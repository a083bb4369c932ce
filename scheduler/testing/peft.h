// SPDX-License-Identifier: Apache-2.0
// Predict Earliest Finish Time as published: H. Arabnejad, J. G. Barbosa, "List Scheduling Algorithm for Heterogeneous
// Systems by an Optimistic Cost Table", IEEE TPDS 25(3), 2014.
#ifndef HPVMD_SCHEDULER_TESTING_PEFT_H_
#define HPVMD_SCHEDULER_TESTING_PEFT_H_

#include <vector>

#include "scheduler/testing/peers.h"

namespace hpvm::scheduler {

// By task and processor: the longest way from the task's end, run there, to the exit, each successor where that is
// shortest; with mean communication between different processors.
std::vector<double> OptimisticCostTable(const PeerProblem& problem);

// Of the ready tasks that with the largest mean of its row, where its finish and its entry in the table are together
// least.
PeerSchedule Peft(const PeerProblem& problem);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_PEFT_H_
