// SPDX-License-Identifier: Apache-2.0
// The agreement of printer and parser: the fields of Op that the text form of each operation contains.
#ifndef HPVMD_COMPILER_IR_OP_SYNTAX_H_
#define HPVMD_COMPILER_IR_OP_SYNTAX_H_

#include "compiler/ir/ir.h"

namespace hpvm::ir {

constexpr bool OwnsRegions(Opcode code) {
  return code == Opcode::kBlock || code == Opcode::kLoop || code == Opcode::kIf;
}

// Returns true when `.type` follows the name; otherwise Op::type is meaningless.
inline bool HasType(Opcode code) {
  switch (Info(code).family) {
    case Family::kCall:
    case Family::kSync:
    case Family::kControl:
      return false;
    case Family::kMemory:
      return code == Opcode::kLoad || code == Opcode::kStore;
    default:
      return true;
  }
}

// Returns true when the operation has a width, a space, and an immediate that is added to the address.
inline bool HasSpace(Opcode code) {
  return code == Opcode::kLoad || code == Opcode::kStore || code == Opcode::kLoad128 || code == Opcode::kStore128 ||
         Info(code).family == Family::kAtomic;
}

// Returns Op::width for operations whose text gives none.
inline uint8_t UsualWidth(const Op& op) {
  return op.code == Opcode::kLoad128 || op.code == Opcode::kStore128 ? 16 : static_cast<uint8_t>(Bytes(op.type));
}

// Returns the letter before the index in `imm`, or 0 when `imm` is no index.
inline char IndexPrefix(Opcode code) {
  switch (code) {
    case Opcode::kGlobalGet:
    case Opcode::kGlobalSet:
      return 'g';
    case Opcode::kCall:
      return 'f';
    case Opcode::kCallRef:
      return 'r';
    case Opcode::kMemoryInit:
      return 's';
    case Opcode::kPrint:
      return 'p';
    default:
      return 0;
  }
}

// Returns true for operations after which a value at the start of the next line is that line's result, not an
// operand.
constexpr bool TakesNoOperands(Opcode code) {
  return code == Opcode::kConst || code == Opcode::kMemorySize || code == Opcode::kGlobalGet ||
         code == Opcode::kBarrier;
}

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_OP_SYNTAX_H_
