// SPDX-License-Identifier: Apache-2.0
// Lowers the v128 instructions to operations on four i32.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_H_

#include "compiler/front/wasm/lower/operand_stack.h"
#include "compiler/front/wasm/lower/simd_ops.h"
#include "compiler/front/wasm/read/simd_instr.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// One object lowers one function. It reuses operations that it built recently while they are in scope.
class SimdLowering {
 public:
  // Both arguments outlive the object.
  SimdLowering(ir::Function& function, ir::Builder& builder)
      : function_(function), builder_(builder), ops_(function, builder) {}

  // Takes the instruction's operands from the stack and pushes its result. Addresses already have the module's
  // address type.
  void Lower(const SimdInstr& instr, OperandStack& stack);
  // Call it when the function is complete: removes unused operations without effect. Packing lanes into words creates
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
