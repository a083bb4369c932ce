// SPDX-License-Identifier: Apache-2.0
// OrToAdd turns `or` into `add` if no bit can be set in both operands.
//
// Compilers write 2 * i + 1 as `or`, because the addition never carries. Analyses of addresses look for sums: values
// that grow by a constant from instance to instance, and whose bounds are polynomials.
#ifndef HPVMD_COMPILER_PASS_OR_TO_ADD_H_
#define HPVMD_COMPILER_PASS_OR_TO_ADD_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Changes all functions; the results are bitwise the same. Requires a verified module, which still verifies.
Status OrToAdd(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_OR_TO_ADD_H_
