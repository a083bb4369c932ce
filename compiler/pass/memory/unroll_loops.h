// SPDX-License-Identifier: Apache-2.0
// Small loops over what an instance keeps on its stack, whose trips are constants, are written out: their indices
// become constants, so that LLVM keeps the elements in registers, and neighbouring loads and stores become records.
#ifndef HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_
#define HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_

#include <cstdint>

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Iterations of a loop, operations that they have together, and those of all loops of a kernel.
struct UnrollLimits {
  uint32_t trips = 32, loop_ops = 512, kernel_ops = 1'536;
};
// The limits for kernels that nobody optimised, where half of the operations go afterwards.
inline constexpr UnrollLimits kUnrollPlain = {.loop_ops = 2'048, .kernel_ops = 8'192};
// The limits where the stack becomes values as a whole or not at all: an array of an instance's own is far away on a
// GPU, its registers are many, and the drivers' compilers write such loops out as well. The second are those of loops
// in loops.
inline constexpr UnrollLimits kUnrollWhole = {.trips = 128, .loop_ops = 4'096, .kernel_ops = 8'192};
inline constexpr UnrollLimits kUnrollNests = {.trips = 128, .loop_ops = 32'768, .kernel_ops = 32'768};
// Larger entries stay as they are: loops in loops are looked at once a level.
inline constexpr size_t kUnrolledFromOpsMax = 20'000;

// The entry, if the module has a stack_frame. A loop with an access of Space::kStack in it is unrolled if each
// iteration's way to its end, or out, follows from constants. It becomes a block.
Status UnrollLoops(ir::Module& module, const UnrollLimits& limits = {});

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_
