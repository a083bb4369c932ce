// SPDX-License-Identifier: Apache-2.0
// RemoveDead removes operations without effects whose results are unused, unreachable code after constructs that no
// jump leaves, and arguments and results of blocks, loops and ifs that are unused or always the same value.
//
// Front ends create many of them: the WebAssembly front end passes every local that is set inside a block through it,
// and represents a v128 by four words beside its lanes. Requires a verified module, which still verifies afterwards
// and has the same meaning; operations keep their source offsets. Values and operations are renumbered.
#ifndef HPVMD_COMPILER_PASS_REMOVE_DEAD_H_
#define HPVMD_COMPILER_PASS_REMOVE_DEAD_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

Status RemoveDead(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_REMOVE_DEAD_H_
