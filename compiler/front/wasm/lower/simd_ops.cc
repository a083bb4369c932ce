// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/simd_ops.h"

#include <algorithm>
#include <array>
#include <span>

namespace hpvm::wasm {
namespace {

constexpr size_t kKnownCount = 2048;

bool IsCommutative(Opcode code) {
  return code == Opcode::kAdd || code == Opcode::kMul || code == Opcode::kAnd || code == Opcode::kOr ||
         code == Opcode::kXor;
}

}  // namespace

ValueId PureOps::Once(const Key& key) {
  known_.resize(kKnownCount);
  uint64_t hash = key.imm;
  const uint64_t kind =
      static_cast<uint64_t>(key.code) << 16 | static_cast<uint64_t>(key.type) << 8 | static_cast<uint64_t>(key.result);
  for (const uint64_t part : {kind, uint64_t{key.a.index}, uint64_t{key.b.index}, uint64_t{key.c.index}}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  const std::span<const ir::RegionId> open = builder_.open();
  const auto set = std::span(known_).subspan(hash % (kKnownCount / 2) * 2, 2);
  for (const Known& known : set) {
    if (known.value.valid() && known.key == key && known.depth < open.size() && open[known.depth] == known.region) {
      return known.value;
    }
  }
  ir::Op op{.code = key.code, .type = key.type, .imm = key.imm};
  const std::array all = {key.a, key.b, key.c};
  const auto count = std::ranges::find_if(all, [](ValueId id) { return !id.valid(); }) - all.begin();
  set[1] = set[0];
  set[0] = {key, builder_.Append1(op, std::span(all).first(static_cast<size_t>(count)), key.result), open.back(),
            open.size() - 1};
  return set[0].value;
}

ValueId PureOps::Const(Type type, uint64_t bits) {
  const uint64_t imm = ir::Bytes(type) == 4 ? static_cast<uint32_t>(bits) : bits;
  return Once({.code = Opcode::kConst, .type = type, .result = type, .a = {}, .b = {}, .c = {}, .imm = imm});
}

const ir::Op* PureOps::DefinitionOf(ValueId value) const {
  for (; operations_seen_ < function_.ops.size(); ++operations_seen_) {
    const ir::Op& op = function_.ops[operations_seen_];
    if (op.result_count > 0) {
      definitions_.resize(op.first_result.index + op.result_count);
      std::fill(definitions_.begin() + op.first_result.index, definitions_.end(),
                static_cast<uint32_t>(operations_seen_ + 1));
    }
  }
  const uint32_t at = value.index < definitions_.size() ? definitions_[value.index] : 0;
  return at == 0 ? nullptr : &function_.ops[at - 1];
}

std::optional<uint64_t> PureOps::BitsOf(ValueId value) const {
  const ir::Op* op = DefinitionOf(value);
  return op != nullptr && op->code == Opcode::kConst ? std::optional(op->imm) : std::nullopt;
}

std::optional<ValueId> PureOps::OperandOf(ValueId value, Opcode code) const {
  const ir::Op* op = DefinitionOf(value);
  return op != nullptr && op->code == code ? std::optional(function_.operands_of(*op)[0]) : std::nullopt;
}

std::optional<ValueId> PureOps::OperandBeside(ValueId value, Opcode code, uint64_t constant) const {
  const ir::Op* op = DefinitionOf(value);
  if (op == nullptr || op->code != code) {
    return std::nullopt;
  }
  const std::span<const ValueId> operands = function_.operands_of(*op);
  return BitsOf(operands[1]) == constant ? std::optional(operands[0]) : std::nullopt;
}

ValueId PureOps::Make(Opcode code, ValueId a) {
  if (const std::optional<ValueId> known = FoldUnary(code, a)) {
    return *known;
  }
  const Type type = type_of(a);
  const Type result = ir::Info(code).family == ir::Family::kIntCompare ? Type::kI32 : type;
  return Once({.code = code, .type = type, .result = result, .a = a, .b = {}, .c = {}});
}

ValueId PureOps::Make(Opcode code, ValueId a, ValueId b) {
  const Type type = type_of(a);
  // Constants come second, so that equal operations are found and folded in either operand order.
  if (IsCommutative(code) && (BitsOf(a) || (!BitsOf(b) && b < a))) {
    std::swap(a, b);
  }
  if (const std::optional<ValueId> known = FoldBinary(code, a, b)) {
    return *known;
  }
  const ir::Family family = ir::Info(code).family;
  const bool is_compare = family == ir::Family::kIntCompare || family == ir::Family::kFloatCompare;
  return Once({.code = code, .type = type, .result = is_compare ? Type::kI32 : type, .a = a, .b = b, .c = {}});
}

ValueId PureOps::Convert(Opcode code, ValueId a, Type to) {
  if (const std::optional<uint64_t> bits = BitsOf(a)) {
    if (code == Opcode::kWrap || code == Opcode::kExtendU || code == Opcode::kReinterpret) {
      return Const(to, *bits);
    }
    if (code == Opcode::kExtendS) {
      return Const(to, static_cast<uint64_t>(int64_t{static_cast<int32_t>(*bits)}));
    }
  }
  if (code == Opcode::kReinterpret) {
    if (const std::optional<ValueId> from = OperandOf(a, Opcode::kReinterpret)) {
      return *from;  // Only one other type has the same width.
    }
  }
  return Once({.code = code, .type = type_of(a), .result = to, .a = a, .b = {}, .c = {}});
}

ValueId PureOps::Select(ValueId condition, ValueId a, ValueId b) {
  if (a == b) {
    return a;
  }
  if (const std::optional<uint64_t> bits = BitsOf(condition)) {
    return *bits != 0 ? a : b;
  }
  const Type type = type_of(a);
  return Once({.code = Opcode::kSelect, .type = type, .result = type, .a = condition, .b = a, .c = b});
}

ValueId PureOps::Join(ValueId low, ValueId high) {
  const std::optional<ValueId> from = OperandOf(low, Opcode::kWrap), shifted = OperandOf(high, Opcode::kWrap);
  if (from && shifted && OperandBeside(*shifted, Opcode::kShrU, 32) == from) {
    return *from;
  }
  if (OperandBeside(high, Opcode::kShrS, 31) == low) {
    return Convert(Opcode::kExtendS, low, Type::kI64);
  }
  const ValueId above = Shl(Convert(Opcode::kExtendU, high, Type::kI64), 32);
  return Or(Convert(Opcode::kExtendU, low, Type::kI64), above);
}

bool PureOps::Joined(ValueId i64, ValueId* low, ValueId* high) const {
  const ir::Op* both = DefinitionOf(i64);
  if (both == nullptr || both->code != Opcode::kOr) {
    return false;
  }
  for (const size_t i : {0, 1}) {
    const std::span<const ValueId> operands = function_.operands_of(*both);
    const std::optional<ValueId> below = OperandOf(operands[i], Opcode::kExtendU);
    const std::optional<ValueId> shifted = OperandBeside(operands[1 - i], Opcode::kShl, 32);
    const std::optional<ValueId> above = shifted ? OperandOf(*shifted, Opcode::kExtendU) : std::nullopt;
    if (below && above) {
      *low = *below;
      *high = *above;
      return true;
    }
  }
  return false;
}

ValueId PureOps::Low(ValueId i64) {
  ValueId low, high;
  if (Joined(i64, &low, &high)) {
    return low;
  }
  if (const std::optional<ValueId> from = OperandOf(i64, Opcode::kExtendU)) {
    return *from;
  }
  if (const std::optional<ValueId> from = OperandOf(i64, Opcode::kExtendS)) {
    return *from;
  }
  return Convert(Opcode::kWrap, i64, Type::kI32);
}

ValueId PureOps::High(ValueId i64) {
  ValueId low, high;
  if (Joined(i64, &low, &high)) {
    return high;
  }
  if (OperandOf(i64, Opcode::kExtendU)) {
    return Word(0);
  }
  if (const std::optional<ValueId> from = OperandOf(i64, Opcode::kExtendS)) {
    return ShrS(*from, 31);
  }
  return Convert(Opcode::kWrap, ShrU(i64, 32), Type::kI32);
}

ValueId PureOps::AsFloat(ValueId integer) {
  return Convert(Opcode::kReinterpret, integer, type_of(integer) == Type::kI32 ? Type::kF32 : Type::kF64);
}

ValueId PureOps::AsInteger(ValueId number) {
  return Convert(Opcode::kReinterpret, number, type_of(number) == Type::kF32 ? Type::kI32 : Type::kI64);
}

std::optional<ValueId> PureOps::ConditionOf(ValueId mask) const {
  const ir::Op* negation = DefinitionOf(mask);
  if (negation == nullptr || negation->code != Opcode::kSub) {
    return std::nullopt;
  }
  const std::span<const ValueId> operands = function_.operands_of(*negation);
  const ir::Op* compare = DefinitionOf(operands[1]);
  if (compare == nullptr || BitsOf(operands[0]) != 0) {
    return std::nullopt;
  }
  const ir::Family family = ir::Info(compare->code).family;
  const bool is_compare = family == ir::Family::kIntCompare || family == ir::Family::kFloatCompare;
  return is_compare ? std::optional(operands[1]) : std::nullopt;
}

}  // namespace hpvm::wasm
