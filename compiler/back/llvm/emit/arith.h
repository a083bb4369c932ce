// SPDX-License-Identifier: Apache-2.0
// Arithmetic, as WebAssembly defines it, on scalars or on vectors of lanes: nothing here may have undefined behaviour
// in LLVM's eyes for any operand of an active lane. Internal to this folder.
//
// On vectors LLVM does some of it one lane at a time (integer division, saturating conversions): there it is put
// together from what the machine does on all lanes at once.
#ifndef HPVMD_COMPILER_BACK_LLVM_EMIT_ARITH_H_
#define HPVMD_COMPILER_BACK_LLVM_EMIT_ARITH_H_

#include <span>

#include "llvm/IR/IRBuilder.h"

#include "compiler/ir/words.h"

namespace hpvm::cpu {

using namespace ir::words;

llvm::Type* TypeOf(ir::Type type, llvm::LLVMContext& context);

class ArithEmitter {
 public:
  explicit ArithEmitter(llvm::IRBuilder<>& b) : b_(b) {}
  virtual ~ArithEmitter() = default;

  // Families const, int and float unary, binary and compare, convert, select. Operands are scalars or vectors of one
  // length; scalars among vectors are splatted, and a constant is a scalar. `result` is the type of the result's value.
  // Comparisons give i32 0 or 1. May begin new blocks.
  llvm::Value* Emit(const ir::Op& op, ir::Type result, std::span<llvm::Value* const> operands);
  // Whether the family is one of those.
  static bool Handles(const ir::Op& op);

 protected:
  // Ends the instances for which `condition` (i1, or a vector of them) holds, if they are active; goes on where it does
  // not. `code` is an i32, or a vector of them.
  virtual void TrapIf(llvm::Value* condition, llvm::Value* code, const ir::Op& op) = 0;
  // The mask of the lanes that are active, or null for all; lanes that are not may hold anything, but must not fault.
  // For operations on scalars an i1, or null.
  virtual llvm::Value* ActiveMask() { return nullptr; }

  llvm::IRBuilder<>& b_;

 private:
  llvm::Value* IntUnary(const ir::Op& op, llvm::Value* a);
  llvm::Value* IntBinary(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* IntCompare(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* FloatUnary(const ir::Op& op, llvm::Value* a);
  llvm::Value* FloatBinary(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* FloatCompare(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* Convert(const ir::Op& op, ir::Type to, llvm::Value* a);
  llvm::Value* Constant(const ir::Op& op);

  llvm::Value* Divide(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  void TrapDivision(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* DivideVectors(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* DivideNarrow(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* DivideWide(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* DivideByLane(const ir::Op& op, llvm::Value* a, llvm::Value* b);

  llvm::Value* Truncate(const ir::Op& op, llvm::Type* to, llvm::Value* a, bool is_signed);
  llvm::Value* Saturate(llvm::Type* to, llvm::Value* a, bool is_signed);

  llvm::Type* TypeOf(ir::Type type, const llvm::Value* like);
  llvm::BasicBlock* NewBlock(const char* name);
  // i1: whether an i1, or one of the active lanes of a vector of them, is set.
  llvm::Value* AnyActive(llvm::Value* condition);
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_EMIT_ARITH_H_
