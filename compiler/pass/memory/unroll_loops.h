// SPDX-License-Identifier: Apache-2.0
// Small loops over what an instance keeps on its stack, whose trips are constants, are written out: their indices
// become constants, so that LLVM keeps the elements in registers, and neighbouring loads and stores become records.
#ifndef HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_
#define HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_

#include <cstdint>

#include "base/status.h"
#include "compiler/ir/ir.h"

namespace hpvm {

inline constexpr uint32_t kUnrolledTripsMax = 32;
// Operations that a loop's iterations have together, and those of all loops of a kernel.
struct UnrollLimits {
  uint32_t loop_ops = 512, kernel_ops = 1'536;
};
// The limits for kernels that nobody optimised, where half of the operations go afterwards.
inline constexpr UnrollLimits kUnrollPlain = {.loop_ops = 2'048, .kernel_ops = 8'192};
// Larger entries stay as they are: loops in loops are looked at once a level.
inline constexpr size_t kUnrolledFromOpsMax = 20'000;

// The entry, if the module has a stack_frame. A loop with an access of Space::kStack in it is unrolled if each
// iteration's way to its end, or out, follows from constants. It becomes a block.
Status UnrollLoops(ir::Module& module, const UnrollLimits& limits = {});

}  // namespace hpvm

#endif  // HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_
