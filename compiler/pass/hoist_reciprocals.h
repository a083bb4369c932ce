// SPDX-License-Identifier: Apache-2.0
// Fast math: HoistReciprocals turns f32 quotients in a loop with an invariant divisor into products with the divisor's
// reciprocal, which is computed once, where the divisor is defined. Drivers do not do so: divisions in our code are
// opaque to OpenCL's, and Vulkan's are not allowed to.
//
// The pass changes the author's code only (ir::FastMath::kAll); the math library's quotients remain unchanged.
#ifndef HPVMD_COMPILER_PASS_HOIST_RECIPROCALS_H_
#define HPVMD_COMPILER_PASS_HOIST_RECIPROCALS_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Changes the entry; runs after InlineAllCalls. For nodes with "math": "fast".
Status HoistReciprocals(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_HOIST_RECIPROCALS_H_
