// SPDX-License-Identifier: Apache-2.0
// MakeStepsUniform turns a value that grows alike in all instances of a group into a uniform sum.
//
// clang keeps addresses in loops: p = base + id * 4 before, p += 64 at the end of an iteration. In a loop around a
// barrier p would be kept for every instance, and would hide that neighbours' addresses are adjacent. When all back
// edges add a uniform value, the loop carries the sum, starting from 0, and p is recomputed from its initial value and
// the sum.
#ifndef HPVMD_COMPILER_PASS_GANG_GROUP_STEPS_H_
#define HPVMD_COMPILER_PASS_GANG_GROUP_STEPS_H_

#include <vector>

#include "compiler/analysis/uniformity.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Rewrites integer parameters of the entry's loops in `loops` (by OpId). `known` is of kSurelyGroup. Returns true if
// anything changed: values and operations are added, none renumbered.
bool MakeStepsUniform(ir::Function& entry, const std::vector<bool>& loops, const analysis::FunctionUniformity& known);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GROUP_STEPS_H_
