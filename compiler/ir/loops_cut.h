// SPDX-License-Identifier: Apache-2.0
// A trap code that no instruction raises: a driver silently ended loops of the kernel early, so the results after the
// loops are invalid. No instance is at fault: llvmpipe ends the loops of all instances of a vector together.
#ifndef HPVMD_COMPILER_IR_LOOPS_CUT_H_
#define HPVMD_COMPILER_IR_LOOPS_CUT_H_

#include <cstdint>

#include "compiler/ir/ir.h"

namespace hpvm::ir {

// Lies after the codes of instructions, and before kStopped.
inline constexpr TrapCode kLoopsCut{19};
static_assert(TrapCode::kHost < kLoopsCut && kLoopsCut < TrapCode::kStopped);

// Limit of Mesa's llvmpipe on the iterations of all loops of a vector of instances (LP_MAX_TGSI_LOOP_ITERATIONS).
// llvmpipe is the driver of every Vulkan target with is_processor that we know.
inline constexpr uint32_t kLlvmpipeLoopRounds = 65'535;

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_LOOPS_CUT_H_
