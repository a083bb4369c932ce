// SPDX-License-Identifier: Apache-2.0
// Integer operations whose operands are constants.
#ifndef HPVMD_COMPILER_IR_FOLD_H_
#define HPVMD_COMPILER_IR_FOLD_H_

#include <cstdint>
#include <optional>
#include <span>

#include "compiler/ir/ir.h"

namespace hpvm::ir {

// The bits of the result, which has the type `result`; an i32's upper half is zero. Nothing where an operand is not
// known, and for what is not folded: floats, divisions that trap, what counts bits, whatever reads, writes, traps or
// asks.
std::optional<uint64_t> FoldInteger(const Op& op, Type result, std::span<const std::optional<uint64_t>> operands);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_FOLD_H_
