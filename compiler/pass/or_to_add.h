// SPDX-License-Identifier: Apache-2.0
// Turns `or` into `add` where no bit is set on both sides.
//
// Compilers write 2 * i + 1 as `or`, since it never carries. As a sum it is what analyses of addresses look for: one
// that grows by a constant from instance to instance, and whose bounds are a polynomial.
#ifndef HPVMD_COMPILER_PASS_OR_TO_ADD_H_
#define HPVMD_COMPILER_PASS_OR_TO_ADD_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Requires a verified module, which still verifies. All functions; the results are the same to the bit.
Status OrToAdd(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_OR_TO_ADD_H_
