// SPDX-License-Identifier: Apache-2.0
// CutUnreachable removes unreachable code: all operations of a region that follow a block, loop or if that no jump
// leaves.
//
// A trap, which is never executed, takes its place. Analyses then need not handle values without sources. Part of
// RemoveDead (remove_dead.h), which drops the removed operations; requires a verified function.
#ifndef HPVMD_COMPILER_PASS_CUT_UNREACHABLE_H_
#define HPVMD_COMPILER_PASS_CUT_UNREACHABLE_H_

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

void CutUnreachable(ir::Function& function);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_CUT_UNREACHABLE_H_
