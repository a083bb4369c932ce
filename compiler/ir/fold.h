// SPDX-License-Identifier: Apache-2.0
// Folds integer operations on constants, and computes which bits of a value may be set.
#ifndef HPVMD_COMPILER_IR_FOLD_H_
#define HPVMD_COMPILER_IR_FOLD_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/functional/function_ref.h"

#include "compiler/ir/ir.h"

namespace hpvm::ir {

// Returns the bits of the result, which has the type `result`; an i32's upper half is zero. Returns nothing when an
// operand is unknown, and for operations that are not folded: floats, divisions that trap, bit counts, and operations
// that read, write, trap or query the launch.
std::optional<uint64_t> FoldInteger(const Op& op, Type result, std::span<const std::optional<uint64_t>> operands);

// Returns the bits that may be set in a value of an integer type, derived from the last few operations that define
// it. `definition_of` returns the operation that defines a value; null for parameters.
uint64_t PossibleBits(const Function& function, absl::FunctionRef<const Op*(ValueId)> definition_of, ValueId value);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_FOLD_H_
