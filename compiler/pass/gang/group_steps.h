// SPDX-License-Identifier: Apache-2.0
// Makes what grows alike in all instances of a group one number.
//
// clang keeps addresses in loops: p = base + id * 4 before, p += 64 at the end of an iteration. In a loop around a
// barrier p would be kept for every instance, and would tell nobody that neighbours' addresses are neighbours. When all
// edges back add what is the same for the group, the loop carries the sum, from 0, and p is made again of its initial
// value and the sum.
#ifndef HPVMD_COMPILER_PASS_GANG_GROUP_STEPS_H_
#define HPVMD_COMPILER_PASS_GANG_GROUP_STEPS_H_

#include <vector>

#include "compiler/analysis/uniformity.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Rewrites integer parameters of the entry's loops in `loops` (by OpId). `known` is of kSurelyGroup. Returns whether
// anything changed: values and operations are added, none renumbered.
bool MakeStepsUniform(ir::Function& entry, const std::vector<bool>& loops, const analysis::FunctionUniformity& known);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GROUP_STEPS_H_
