// SPDX-License-Identifier: Apache-2.0
// The v128 instructions as operations on four i32.
#ifndef HPVMD_COMPILER_FRONT_WASM_SIMD_H_
#define HPVMD_COMPILER_FRONT_WASM_SIMD_H_

#include <array>
#include <cstdint>

#include "compiler/front/wasm/operand_stack.h"
#include "compiler/front/wasm/simd_ops.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// A validated instruction with the prefix 0xfd.
struct SimdInstr {
  uint32_t opcode = 0;              // wabt::Opcode::Enum.
  uint32_t source = 0;              // For Op::source.
  uint8_t lane = 0;                 // Lane operations, and loads and stores of a lane.
  uint64_t offset = 0;              // Loads and stores: added to the address, ir::Op::imm.
  std::array<uint8_t, 16> bytes{};  // v128.const and i8x16.shuffle.
};

// Why instructions of that opcode are not taken, as the rest of the sentence "... is refused: ", or null.
const char* SimdRefusal(uint32_t opcode);

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

#endif  // HPVMD_COMPILER_FRONT_WASM_SIMD_H_
