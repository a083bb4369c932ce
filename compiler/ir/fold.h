// SPDX-License-Identifier: Apache-2.0
// Integer operations whose operands are constants, and which bits of others may be set.
#ifndef HPVMD_COMPILER_IR_FOLD_H_
#define HPVMD_COMPILER_IR_FOLD_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/functional/function_ref.h"

#include "compiler/ir/ir.h"

namespace hpvm::ir {

// The bits of the result, which has the type `result`; an i32's upper half is zero. Nothing where an operand is not
// known, and for what is not folded: floats, divisions that trap, what counts bits, whatever reads, writes, traps or
// asks.
std::optional<uint64_t> FoldInteger(const Op& op, Type result, std::span<const std::optional<uint64_t>> operands);

// The bits that may be set in a value of an integer type, as far as the few operations before it tell. `definition_of`
// gives the operation that makes a value; null for parameters.
uint64_t PossibleBits(const Function& function, absl::FunctionRef<const Op*(ValueId)> definition_of, ValueId value);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_FOLD_H_
