// SPDX-License-Identifier: Apache-2.0
// UnrollLoops unrolls small loops over an instance's stack whose trip counts are constant: their indices become
// constants, so that LLVM keeps the elements in registers, and neighbouring loads and stores become records.
#ifndef HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_
#define HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_

#include <cstdint>

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Maximum iterations of a loop, operations of all its iterations, and operations of all loops of a kernel.
struct UnrollLimits {
  uint32_t trips = 32, loop_ops = 512, kernel_ops = 1'536;
};
// For kernels compiled without optimisation, where later passes remove half of the operations.
inline constexpr UnrollLimits kUnrollPlain = {.loop_ops = 2'048, .kernel_ops = 8'192};
// For back ends where the stack becomes values completely or not at all: a private array is slow on a GPU, which has
// many registers, and the drivers' compilers unroll such loops as well. kUnrollNests is for nested loops.
inline constexpr UnrollLimits kUnrollWhole = {.trips = 128, .loop_ops = 4'096, .kernel_ops = 8'192};
inline constexpr UnrollLimits kUnrollNests = {.trips = 128, .loop_ops = 32'768, .kernel_ops = 32'768};
// Larger entries remain unchanged, because nested loops are examined once per level.
inline constexpr size_t kUnrolledFromOpsMax = 20'000;

// Changes the entry, if the module has a stack_frame. A loop that contains an access of Space::kStack is unrolled if
// the path of each iteration to its end, or out of the loop, follows from constants. The loop becomes a block.
Status UnrollLoops(ir::Module& module, const UnrollLimits& limits = {});

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_UNROLL_LOOPS_H_
