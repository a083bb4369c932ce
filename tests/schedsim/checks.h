// SPDX-License-Identifier: Apache-2.0
// Properties of decisions, checked independently of the code that makes them. Faults are sentences "property: what is
// wrong"; none when all properties hold.
#ifndef HPVMD_TESTS_SCHEDSIM_CHECKS_H_
#define HPVMD_TESTS_SCHEDSIM_CHECKS_H_

#include <string>
#include <vector>

#include "graph/flatten.h"
#include "scheduler/placement/remainder.h"
#include "scheduler/task.h"

namespace hpvm::schedsim {

// No part of a launch writes bytes that another part accesses.
std::vector<std::string> CheckParts(const graph::FlatGraph& flat, const scheduler::AccessModel& accesses,
                                    const std::vector<scheduler::Task>& tasks);

// Exactly the nodes that outputs still need are left; they use the same values as before, and so do the outputs.
std::vector<std::string> CheckRemainder(const graph::FlatGraph& whole, const scheduler::Remainder& rest,
                                        const std::vector<bool>& is_kept);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_CHECKS_H_
