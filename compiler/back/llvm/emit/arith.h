// SPDX-License-Identifier: Apache-2.0
// ArithEmitter emits WebAssembly's arithmetic on scalars or on vectors of lanes: the LLVM IR has no undefined
// behaviour for any operand of an active lane. Internal to this folder.
//
// LLVM performs some vector operations one lane at a time (integer division, saturating conversions); these are
// composed of operations that the machine performs on all lanes at once.
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

  // Emits families const, int and float unary, binary and compare, convert, select. Operands are scalars or vectors of
  // one length; scalars among vectors are splatted, and a constant is a scalar. `result` is the type of the result's
  // value. Comparisons give i32 0 or 1. May begin new blocks.
  llvm::Value* Emit(const ir::Op& op, ir::Type result, std::span<llvm::Value* const> operands);
  // Returns true if Emit handles the operation's family.
  static bool Handles(const ir::Op& op);

 protected:
  // Ends the active instances for which `condition` (i1, or a vector of i1) holds; control continues for the others.
  // `code` is an i32, or a vector of i32.
  virtual void TrapIf(llvm::Value* condition, llvm::Value* code, const ir::Op& op) = 0;
  // Returns the mask of the active lanes, or null when all are active; inactive lanes may hold any value, but must not
  // fault. For operations on scalars: an i1, or null.
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
  // Returns an i1: true if `condition` is a set i1, or a vector of i1 with a set active lane.
  llvm::Value* AnyActive(llvm::Value* condition);
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_EMIT_ARITH_H_
