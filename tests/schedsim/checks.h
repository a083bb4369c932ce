// SPDX-License-Identifier: Apache-2.0
// What must hold of decisions, said again without their code. Sentences as "property: what is wrong"; none: all is
// well.
#ifndef HPVMD_TESTS_SCHEDSIM_CHECKS_H_
#define HPVMD_TESTS_SCHEDSIM_CHECKS_H_

#include <string>
#include <vector>

#include "graph/flatten.h"
#include "scheduler/placement/remainder.h"
#include "scheduler/task.h"

namespace hpvm::schedsim {

// What one part of a launch writes is nothing that another one touches.
std::vector<std::string> CheckParts(const graph::FlatGraph& flat, const scheduler::AccessModel& accesses,
                                    const std::vector<scheduler::Task>& tasks);

// Exactly the nodes are left that outputs still need; they use the values that they used, and so do the outputs.
std::vector<std::string> CheckRemainder(const graph::FlatGraph& whole, const scheduler::Remainder& rest,
                                        const std::vector<bool>& is_kept);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_CHECKS_H_
