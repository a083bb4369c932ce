// SPDX-License-Identifier: Apache-2.0
// The v128 instructions as operations on four i32.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_H_

#include "compiler/front/wasm/lower/operand_stack.h"
#include "compiler/front/wasm/lower/simd_ops.h"
#include "compiler/front/wasm/read/simd_instr.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// One a function. Operations that it built lately it uses again where they are in scope.
class SimdLowering {
 public:
  // Both outlive it.
  SimdLowering(ir::Function& function, ir::Builder& builder)
      : function_(function), builder_(builder), ops_(function, builder) {}

  // Takes the instruction's operands from the stack and leaves its result there. Addresses have the module's address
  // type already.
  void Lower(const SimdInstr& instr, OperandStack& stack);
  // When the function is complete: drops operations without effect that nothing uses. Packing lanes into words leaves
  // many, since most words are taken apart again at once.
  void Finish();

 private:
  ir::Function& function_;
  ir::Builder& builder_;
  PureOps ops_;
  bool is_used_ = false;
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_H_
