// SPDX-License-Identifier: Apache-2.0
// Removes what nothing needs or reaches: operations without effects whose results are unused, code behind what nothing
// leaves, and block, loop and if arguments and results that are unused or always the same value.
//
// Front ends make both in numbers: the WebAssembly front end carries every local set inside a block through it, and a
// v128 has its four words beside its lanes. Requires a verified module, which still verifies afterwards and means the
// same; operations keep their source offsets. Values and operations get new numbers.
#ifndef HPVMD_COMPILER_PASS_REMOVE_DEAD_H_
#define HPVMD_COMPILER_PASS_REMOVE_DEAD_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

Status RemoveDead(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_REMOVE_DEAD_H_
