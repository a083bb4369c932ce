// SPDX-License-Identifier: Apache-2.0
// Cuts off what control never reaches: in a region, all behind a block, loop or if that nothing leaves.
//
// A trap stands where it was, which nothing executes. Analyses need not ask then what values without any source are.
// Part of RemoveDead (remove_dead.h), which drops what was cut; requires a verified function.
#ifndef HPVMD_COMPILER_PASS_CUT_UNREACHABLE_H_
#define HPVMD_COMPILER_PASS_CUT_UNREACHABLE_H_

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

void CutUnreachable(ir::Function& function);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_CUT_UNREACHABLE_H_
