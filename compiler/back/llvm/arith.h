// SPDX-License-Identifier: Apache-2.0
// Arithmetic, as WebAssembly defines it, on scalars or on vectors of lanes: nothing here may have undefined behaviour in
// LLVM's eyes for any operand of an active lane. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_LLVM_ARITH_H_
#define HPVMD_COMPILER_BACK_LLVM_ARITH_H_

#include <span>

#include "llvm/IR/IRBuilder.h"

#include "compiler/ir/ir.h"

namespace hpvm::cpu {

class ArithEmitter {
 public:
  explicit ArithEmitter(llvm::IRBuilder<>& b) : b_(b) {}
  virtual ~ArithEmitter() = default;

  // Families const, int and float unary, binary and compare, convert, select. Operands are all scalars or all vectors
  // of one length; `result` is the type of the result's value. Comparisons give i32 0 or 1.
  llvm::Value* Emit(const ir::Op& op, ir::Type result, std::span<llvm::Value* const> operands);
  // Whether the family is one of those.
  static bool Handles(const ir::Op& op);

 protected:
  // Ends the instances for which `condition` (i1, or a vector of them) holds, if they are active; goes on where it does
  // not. `code` is an i32, or a vector of them.
  virtual void TrapIf(llvm::Value* condition, llvm::Value* code, const ir::Op& op) = 0;
  // The mask of the lanes that are active, or null for all; lanes that are not may hold anything, but must not fault.
  virtual llvm::Value* ActiveMask() { return nullptr; }

  llvm::IRBuilder<>& b_;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_ARITH_H_
