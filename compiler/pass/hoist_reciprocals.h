// SPDX-License-Identifier: Apache-2.0
// Fast math: in a loop that does not change the divisor, quotients of f32 become products with its reciprocal, which is
// taken once, where the divisor is known. Drivers do not: what divides in our code is opaque to OpenCL's, and Vulkan's
// may not.
//
// Only what an author wrote (ir::FastMath::kAll); the math library's quotients stay what they are.
#ifndef HPVMD_COMPILER_PASS_HOIST_RECIPROCALS_H_
#define HPVMD_COMPILER_PASS_HOIST_RECIPROCALS_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Of the entry, behind InlineAllCalls. For nodes with "math": "fast".
Status HoistReciprocals(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_HOIST_RECIPROCALS_H_
