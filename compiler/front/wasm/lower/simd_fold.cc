// SPDX-License-Identifier: Apache-2.0
// The results that PureOps finds without building an operation: constants, neutral operands, and lanes taken from a
// word that was just joined.
#include <array>
#include <span>

#include "compiler/front/wasm/lower/simd_ops.h"
#include "compiler/ir/fold.h"

namespace hpvm::wasm {
namespace {

// A fold may build operations, which are folded in turn. The kernel's own operations can form chains of any length,
// so the depth is limited; an unsimplified operation is still correct.
constexpr int kFoldDepthMax = 6;

}  // namespace

std::optional<ValueId> PureOps::FoldBinary(Opcode code, ValueId a, ValueId b) {
  const Type type = type_of(a);
  if (ir::Info(code).family != ir::Family::kIntBinary) {
    return std::nullopt;
  }
  if (a == b && (code == Opcode::kAnd || code == Opcode::kOr)) {
    return a;
  }
  if (a == b && (code == Opcode::kXor || code == Opcode::kSub)) {
    return Const(type, 0);
  }
  const std::optional<uint64_t> left = BitsOf(a), right = BitsOf(b);
  if (left && right) {
    if (const auto bits = ir::FoldInteger({.code = code, .type = type}, type, std::array{left, right})) {
      return Const(type, *bits);
    }
  }
  if (!right) {
    return std::nullopt;
  }
  if (const std::optional<ValueId> known = FoldNeutral(code, a, *right, Ones(a))) {
    return known;
  }
  if (fold_depth_ == kFoldDepthMax) {
    return std::nullopt;
  }
  ++fold_depth_;
  std::optional<ValueId> known;
  if (code == Opcode::kAnd) {
    known = FoldAnd(a, *right);
  } else if (code == Opcode::kShrU || code == Opcode::kShrS) {
    known = FoldShiftDown(code, a, *right % (ir::Bytes(type) * 8));
  }
  --fold_depth_;
  return known;
}

std::optional<ValueId> PureOps::FoldNeutral(Opcode code, ValueId a, uint64_t b, uint64_t ones) {
  switch (code) {
    case Opcode::kAnd:
      return b == ones ? std::optional(a) : b == 0 ? std::optional(Const(type_of(a), 0)) : std::nullopt;
    case Opcode::kOr:
      return b == 0 ? std::optional(a) : b == ones ? std::optional(Const(type_of(a), ones)) : std::nullopt;
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kXor:
    case Opcode::kShl:
    case Opcode::kShrU:
    case Opcode::kShrS:
      return b == 0 ? std::optional(a) : std::nullopt;
    case Opcode::kMul:
      return b == 1 ? std::optional(a) : b == 0 ? std::optional(Const(type_of(a), 0)) : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<ValueId> PureOps::FoldAnd(ValueId a, uint64_t mask) {
  const uint64_t possible = PossibleBits(a);
  if ((possible & mask) == 0) {
    return Const(type_of(a), 0);
  }
  if ((possible & ~mask) == 0) {
    return a;
  }
  if (const std::optional<ValueId> side = SideOf(a, mask)) {
    return And(*side, mask);
  }
  const ir::Op* op = DefinitionOf(a);
  if (op == nullptr || op->code != Opcode::kAnd) {
    return std::nullopt;
  }
  const std::span<const ValueId> operands = function_.operands_of(*op);
  const std::optional<uint64_t> inner = BitsOf(operands[1]);
  return inner ? std::optional(And(operands[0], *inner & mask)) : std::nullopt;
}

std::optional<ValueId> PureOps::FoldShiftDown(Opcode code, ValueId a, uint64_t count) {
  const uint64_t remaining = Ones(a) << count & Ones(a);
  if ((PossibleBits(a) & remaining) == 0) {
    return Const(type_of(a), 0);
  }
  if (const std::optional<ValueId> side = SideOf(a, remaining)) {
    return Make(code, *side, count);
  }
  const std::optional<ValueId> moved = OperandBeside(a, Opcode::kShl, count);
  if (moved && code == Opcode::kShrU) {
    return And(*moved, Ones(a) >> count);
  }
  if (moved && type_of(a) == Type::kI32 && (count == 16 || count == 24)) {
    return Make(count == 16 ? Opcode::kExtend16 : Opcode::kExtend8, *moved);
  }
  return std::nullopt;
}

std::optional<ValueId> PureOps::FoldUnary(Opcode code, ValueId a) {
  const bool is_byte = code == Opcode::kExtend8;
  if ((!is_byte && code != Opcode::kExtend16) || type_of(a) != Type::kI32) {
    return std::nullopt;
  }
  if (const std::optional<uint64_t> bits = BitsOf(a)) {
    const int32_t value = is_byte ? static_cast<int8_t>(*bits) : static_cast<int16_t>(*bits);
    return Word(static_cast<uint32_t>(value));
  }
  const uint64_t mask = is_byte ? 0xff : 0xffff;
  if ((PossibleBits(a) & ~(mask >> 1)) == 0 || OperandOf(a, Opcode::kExtend8)) {
    return a;
  }
  const uint64_t above = is_byte ? 24 : 16;
  if (const std::optional<ValueId> from = OperandBeside(a, Opcode::kShrU, above)) {
    return ShrS(*from, above);
  }
  std::optional<ValueId> from = SideOf(a, mask);
  if (!from) {
    from = OperandBeside(a, Opcode::kAnd, mask);
  }
  if (!from || fold_depth_ == kFoldDepthMax) {
    return std::nullopt;
  }
  ++fold_depth_;
  from = Make(code, *from);
  --fold_depth_;
  return from;
}

std::optional<ValueId> PureOps::SideOf(ValueId value, uint64_t mask) const {
  const ir::Op* op = DefinitionOf(value);
  if (op == nullptr || op->code != Opcode::kOr) {
    return std::nullopt;
  }
  const std::span<const ValueId> operands = function_.operands_of(*op);
  if ((PossibleBits(operands[0]) & mask) == 0) {
    return operands[1];
  }
  return (PossibleBits(operands[1]) & mask) == 0 ? std::optional(operands[0]) : std::nullopt;
}

}  // namespace hpvm::wasm
