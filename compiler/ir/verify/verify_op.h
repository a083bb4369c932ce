// SPDX-License-Identifier: Apache-2.0
// Checks of single operations, one function per group of families. Each returns the fault as a sentence, or nothing.
// Callers ensure that ids are in range (F1) and that targets enclose the operation.
#ifndef HPVMD_COMPILER_IR_VERIFY_VERIFY_OP_H_
#define HPVMD_COMPILER_IR_VERIFY_VERIFY_OP_H_

#include <initializer_list>
#include <span>
#include <string>

#include "compiler/ir/walk.h"

namespace hpvm::ir {

struct OpContext {
  const Module& module;
  const Function& function;
  const Op& op;

  Type operand(uint32_t i) const { return function.type_of(function.operands_of(op)[i]); }
  Type result(uint32_t i) const { return function.type_of(ValueId(op.first_result.index + i)); }
};

// Returns no fault when the operands from `first_operand` on have exactly those types.
std::string ExpectOperands(const OpContext& c, std::span<const Type> types, uint32_t first_operand = 0);
std::string ExpectResults(const OpContext& c, std::span<const Type> types);
std::string ExpectSignature(const OpContext& c, std::initializer_list<Type> operands,
                            std::initializer_list<Type> results);

std::string CheckArithmetic(const OpContext& c);   // const, integers, floats, conversions, select.
std::string CheckMemory(const OpContext& c);       // memory, atomics, globals.
std::string CheckQueryOrSync(const OpContext& c);  // queries, barrier, local_alloc.
std::string CheckControl(const OpContext& c);      // calls, blocks and terminators.

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_VERIFY_VERIFY_OP_H_
