// SPDX-License-Identifier: Apache-2.0
// A trap that no instruction has: a driver ended loops of the kernel early, without a word, and what came behind them
// is worth nothing. No instance is to blame: llvmpipe ends the loops of all instances of a vector together.
#ifndef HPVMD_COMPILER_IR_LOOPS_CUT_H_
#define HPVMD_COMPILER_IR_LOOPS_CUT_H_

#include <cstdint>

#include "compiler/ir/ir.h"

namespace hpvm::ir {

// Behind the codes of instructions, and before kStopped.
inline constexpr TrapCode kLoopsCut{19};
static_assert(TrapCode::kHost < kLoopsCut && kLoopsCut < TrapCode::kStopped);

// What Mesa's llvmpipe lets a vector of instances run of all its loops (LP_MAX_TGSI_LOOP_ITERATIONS). It is the driver
// of every Vulkan target with is_processor that we know.
inline constexpr uint32_t kLlvmpipeLoopRounds = 65'535;

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_LOOPS_CUT_H_
