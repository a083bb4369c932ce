// SPDX-License-Identifier: Apache-2.0
// Builds operations without effect: none when the result is known, and in most cases only one when an equal operation
// is in scope.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_OPS_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_OPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/fold.h"
#include "compiler/ir/words.h"

namespace hpvm::wasm {

using namespace ir::words;

class PureOps {
 public:
  PureOps(ir::Function& function, ir::Builder& builder) : function_(function), builder_(builder) {}

  ir::ValueId Const(ir::Type type, uint64_t bits);
  ir::ValueId Word(uint32_t bits) { return Const(ir::Type::kI32, bits); }
  // The operands' type is the operation's type; a number stands for a constant of that type. Comparisons give an i32.
  ir::ValueId Make(ir::Opcode code, ir::ValueId a);
  ir::ValueId Make(ir::Opcode code, ir::ValueId a, ir::ValueId b);
  ir::ValueId Make(ir::Opcode code, ir::ValueId a, uint64_t b) { return Make(code, a, Const(function_.type_of(a), b)); }
  ir::ValueId Convert(ir::Opcode code, ir::ValueId a, ir::Type to);
  ir::ValueId Select(ir::ValueId condition, ir::ValueId a, ir::ValueId b);

  // `b` is a value or a number.
  ir::ValueId And(ir::ValueId a, auto b) { return Make(ir::Opcode::kAnd, a, b); }
  ir::ValueId Or(ir::ValueId a, auto b) { return Make(ir::Opcode::kOr, a, b); }
  ir::ValueId Xor(ir::ValueId a, auto b) { return Make(ir::Opcode::kXor, a, b); }
  ir::ValueId Add(ir::ValueId a, auto b) { return Make(ir::Opcode::kAdd, a, b); }
  ir::ValueId Sub(ir::ValueId a, auto b) { return Make(ir::Opcode::kSub, a, b); }
  ir::ValueId Mul(ir::ValueId a, auto b) { return Make(ir::Opcode::kMul, a, b); }
  ir::ValueId Shl(ir::ValueId a, auto b) { return Make(ir::Opcode::kShl, a, b); }
  ir::ValueId ShrU(ir::ValueId a, auto b) { return Make(ir::Opcode::kShrU, a, b); }
  ir::ValueId ShrS(ir::ValueId a, auto b) { return Make(ir::Opcode::kShrS, a, b); }
  ir::ValueId Not(ir::ValueId a) { return Xor(a, ~uint64_t{0}); }

  // Join makes an i64 of two words; Low and High take it apart. Taking apart a joined i64 costs no operation.
  ir::ValueId Join(ir::ValueId low, ir::ValueId high);
  ir::ValueId Low(ir::ValueId i64);
  ir::ValueId High(ir::ValueId i64);
  // Both keep the bits.
  ir::ValueId AsFloat(ir::ValueId integer);
  ir::ValueId AsInteger(ir::ValueId number);

  // Mask returns a word of ones when the condition (0 or 1) holds, else of zeros; ConditionOf inverts Mask.
  ir::ValueId Mask(ir::ValueId condition) { return Sub(Word(0), condition); }
  std::optional<ir::ValueId> ConditionOf(ir::ValueId mask) const;

  std::optional<uint64_t> BitsOf(ir::ValueId value) const;  // Returns the bits of a constant.
  ir::Type type_of(ir::ValueId value) const { return function_.type_of(value); }

 private:
  struct Key {
    ir::Opcode code = ir::Opcode::kConst;
    ir::Type type = ir::Type::kI32, result = ir::Type::kI32;
    ir::ValueId a, b, c;
    uint64_t imm = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  // An operation built in a region. Its value is in scope while that region is open at that depth.
  struct Known {
    Key key;
    ir::ValueId value;  // Invalid when the entry is free.
    ir::RegionId region;
    size_t depth = 0;
  };

  ir::ValueId Once(const Key& key);
  // Returns the operation that defines the value; null for a parameter.
  const ir::Op* DefinitionOf(ir::ValueId value) const;
  // Returns the operand of `value` when `value` is the result of the unary operation `code`.
  std::optional<ir::ValueId> OperandOf(ir::ValueId value, ir::Opcode code) const;
  // Returns x when `value` is the operation `code` on x and that constant.
  std::optional<ir::ValueId> OperandBeside(ir::ValueId value, ir::Opcode code, uint64_t constant) const;

  // The Fold functions return a result that needs no operation or a simpler one (simd_fold.cc).
  std::optional<ir::ValueId> FoldUnary(ir::Opcode code, ir::ValueId a);
  std::optional<ir::ValueId> FoldBinary(ir::Opcode code, ir::ValueId a, ir::ValueId b);
  std::optional<ir::ValueId> FoldNeutral(ir::Opcode code, ir::ValueId a, uint64_t b, uint64_t ones);
  std::optional<ir::ValueId> FoldAnd(ir::ValueId a, uint64_t mask);
  std::optional<ir::ValueId> FoldShiftDown(ir::Opcode code, ir::ValueId a, uint64_t count);
  // Returns the operand of an `or` that provides all bits of the mask; the other operand has none of them.
  std::optional<ir::ValueId> SideOf(ir::ValueId value, uint64_t mask) const;
  // Returns the bits that may be set in a value of an integer type.
  uint64_t PossibleBits(ir::ValueId value) const {
    return ir::PossibleBits(function_, [this](ir::ValueId of) { return DefinitionOf(of); }, value);
  }
  uint64_t Ones(ir::ValueId value) const { return type_of(value) == ir::Type::kI32 ? 0xffffffffu : ~uint64_t{0}; }
  // Finds the words that an i64 was joined from.
  bool Joined(ir::ValueId i64, ir::ValueId* low, ir::ValueId* high) const;

  ir::Function& function_;
  ir::Builder& builder_;
  // The latest two operations of each hash. An operation that is used again was nearly always built shortly before,
  // so a small table suffices, however long the function is.
  std::vector<Known> known_;
  // Indexed by value: the operation that defines it, counted from 1; 0 for parameters. Covers the first
  // operations_seen_ operations.
  mutable std::vector<uint32_t> definitions_;
  mutable size_t operations_seen_ = 0;
  int fold_depth_ = 0;
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_OPS_H_
