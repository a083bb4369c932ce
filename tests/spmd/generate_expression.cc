// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "tests/spmd/generator.h"

namespace hpvm::spmd {
namespace {

constexpr Type kI32 = Type::kI32;

template <size_t n>
Opcode OneOf(diff::Random& random, const Opcode (&codes)[n]) {
  return codes[random.Below(n)];
}

constexpr Opcode kIntBinary[] = {Opcode::kAdd,  Opcode::kAdd,  Opcode::kSub, Opcode::kMul, Opcode::kMul,
                                 Opcode::kAnd,  Opcode::kOr,   Opcode::kXor, Opcode::kShl, Opcode::kShrS,
                                 Opcode::kShrU, Opcode::kRotl, Opcode::kRotr};
constexpr Opcode kIntUnary[] = {Opcode::kClz, Opcode::kCtz, Opcode::kPopcnt, Opcode::kExtend8, Opcode::kExtend16};
constexpr Opcode kIntCompare[] = {Opcode::kEq,  Opcode::kNe,  Opcode::kLtS, Opcode::kLtU, Opcode::kGtS,
                                  Opcode::kGtU, Opcode::kLeS, Opcode::kLeU, Opcode::kGeS, Opcode::kGeU};
constexpr Opcode kFloatBinary[] = {Opcode::kFAdd, Opcode::kFAdd, Opcode::kFSub, Opcode::kFMul,     Opcode::kFMul,
                                   Opcode::kFDiv, Opcode::kFMin, Opcode::kFMax, Opcode::kFCopysign};
constexpr Opcode kFloatUnary[] = {Opcode::kFAbs,   Opcode::kFNeg,     Opcode::kFCeil, Opcode::kFFloor,
                                  Opcode::kFTrunc, Opcode::kFNearest, Opcode::kFSqrt};
constexpr Opcode kFloatCompare[] = {Opcode::kFEq, Opcode::kFNe, Opcode::kFLt, Opcode::kFGt, Opcode::kFLe, Opcode::kFGe};

}  // namespace

OpId Generator::Emit(Op op, std::span<const ValueId> operands, std::span<const Type> results) {
  op.source = ++source_;
  return b().Append(op, operands, results);
}

ValueId Generator::Emit1(Op op, std::initializer_list<ValueId> operands, Type result) {
  const OpId made = Emit(op, std::span(operands.begin(), operands.size()), std::array{result});
  return body_->function.op(made).first_result;
}

ValueId Generator::Binary(Opcode code, Type type, ValueId a, ValueId b) {
  Op op{.code = code};
  op.type = type;
  return Emit1(op, {a, b}, type);
}

ValueId Generator::Compare(Opcode code, Type type, ValueId a, ValueId b) {
  Op op{.code = code};
  op.type = type;
  return Emit1(op, {a, b}, kI32);
}

ValueId Generator::Unary(Opcode code, Type type, ValueId a) {
  Op op{.code = code};
  op.type = type;
  return Emit1(op, {a}, type);
}

ValueId Generator::Convert(Opcode code, Type from, ValueId a, Type to) {
  Op op{.code = code};
  op.type = from;
  return Emit1(op, {a}, to);
}

Type Generator::AnyType() {
  static constexpr Type kTypes[] = {Type::kI32, Type::kI32, Type::kI32, Type::kF32, Type::kF32, Type::kI64, Type::kF64};
  return kTypes[random_.Below(std::size(kTypes))];
}

ValueId Generator::Constant(Type type) {
  static constexpr uint32_t kInts[] = {0,  1,  2,  3,   4,   5,          7,          8,          16,        31,
                                       32, 63, 64, 100, 255, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff0};
  // 0, 1, -1.5, 0.1, 1e10, infinity, a NaN.
  static constexpr uint32_t kF32s[] = {0,          0x3f800000, 0xbfc00000, 0x3dcccccd, 0x501502f9,
                                       0x7f800000, 0x7fc00000, 0x80000000, 0x40400000};
  static constexpr uint64_t kF64s[] = {0,
                                       0x3ff0000000000000,
                                       0xbff8000000000000,
                                       0x3fb999999999999a,
                                       0x4202a05f20000000,
                                       0x7ff0000000000000,
                                       0x7ff8000000000000,
                                       0x8000000000000000};
  switch (type) {
    case Type::kI32:
      return Int(type, random_.Percent(85) ? kInts[random_.Below(std::size(kInts))] : random_.Next());
    case Type::kI64:
      return Int(type, random_.Percent(85) ? static_cast<uint64_t>(static_cast<int32_t>(kInts[random_.Below(19)]))
                                           : random_.Next());
    case Type::kF32:
      return Int(type, kF32s[random_.Below(std::size(kF32s))]);
    default:
      return Int(type, kF64s[random_.Below(std::size(kF64s))]);
  }
}

ValueId Generator::Pick(Type type) {
  const std::vector<Slot>& pool = body_->pool;
  // Prefers recent values, so that chains grow long.
  const size_t window = random_.Percent(60) ? std::min<size_t>(pool.size(), 8) : pool.size();
  for (uint32_t tries = 0; tries < 6 && window > 0; ++tries) {
    const Slot& slot = pool[pool.size() - 1 - random_.Below(static_cast<uint32_t>(window))];
    if (slot.type == type) {
      return slot.id;
    }
  }
  std::vector<ValueId> fitting;
  for (const Slot& slot : pool) {
    if (slot.type == type) {
      fitting.push_back(slot.id);
    }
  }
  return fitting.empty() || random_.Percent(4) ? Constant(type) : random_.Pick(fitting);
}

ValueId Generator::PickUniform(Type type) {
  std::vector<ValueId> fitting;
  for (const Slot& slot : body_->pool) {
    if (slot.type == type && slot.is_uniform) {
      fitting.push_back(slot.id);
    }
  }
  return fitting.empty() ? Constant(type) : random_.Pick(fitting);
}

ValueId Generator::Value(Type type, uint32_t depth) {
  if (depth == 0 || random_.Percent(30)) {
    return random_.Percent(90) ? Pick(type) : Constant(type);
  }
  if (random_.Percent(8)) {
    Op op{.code = Opcode::kSelect};
    op.type = type;
    const ValueId condition = Condition();
    const ValueId a = Value(type, depth - 1), other = Value(type, depth - 1);
    return Emit1(op, {condition, a, other}, type);
  }
  return ir::IsInt(type) ? IntValue(type, depth - 1) : FloatValue(type, depth - 1);
}

// A divisor that is neither 0 nor, where that matters, -1; or any.
ValueId Generator::Divide(Type type, uint32_t depth) {
  static constexpr Opcode kDivisions[] = {Opcode::kDivS, Opcode::kDivU, Opcode::kRemS, Opcode::kRemU};
  const Opcode code = OneOf(random_, kDivisions);
  const ValueId dividend = Value(type, depth);
  if (random_.Percent(traits_.risk)) {
    return Binary(code, type, dividend, Value(type, depth));
  }
  ValueId divisor;
  if (random_.Percent(40)) {
    static constexpr uint64_t kDivisors[] = {1, 2, 3, 5, 7, 8, 10, 64, 1000, 0x7fffffff};
    divisor = Int(type, kDivisors[random_.Below(std::size(kDivisors))]);
  } else if (code == Opcode::kDivS) {
    const ValueId any = Value(type, depth);
    divisor = Binary(Opcode::kOr, type, Binary(Opcode::kAnd, type, any, Int(type, 0xffff)), Int(type, 1));
  } else {
    const ValueId any = Value(type, depth);
    divisor = Binary(Opcode::kOr, type, any, Int(type, random_.Percent(70) ? 1 : uint64_t{1} << 31));
  }
  return Binary(code, type, dividend, divisor);
}

// Indices that are clamped, mirrored or wrapped around for few instances.
void Generator::AddEdges(ValueId x) {
  // Lists of known differences name other seeds, whose kernels must not change.
  if (kernel_.seed < 64 || kernel_.seed % 4 != 2) {
    return;
  }
  for (uint32_t i = random_.Between(2, 5); i > 0; --i) {
    const Type type = random_.Percent(75) ? kI32 : Type::kI64;
    ValueId moved =
        type == kI32 ? x : Convert(random_.Percent(50) ? Opcode::kExtendS : Opcode::kExtendU, kI32, x, type);
    if (random_.Percent(20)) {
      moved = Binary(Opcode::kMul, type, moved, Int(type, random_.Percent(50) ? random_.Below(5) : ~uint64_t{0}));
    }
    moved = Binary(Opcode::kAdd, type, moved,
                   random_.Percent(70) ? Int(type, uint64_t{random_.Below(9)} - 4) : PickUniform(type));
    Keep(EdgeValue(type, moved), type);
  }
}

ValueId Generator::EdgeValue(Type type, ValueId moved) {
  static constexpr uint64_t kEnds[] = {1, 7, 16, 33, 64, 100, 0x7fffffff, 0x80000000, ~uint64_t{0}};
  const ValueId end = random_.Percent(80) ? Int(type, kEnds[random_.Below(std::size(kEnds))]) : PickUniform(type);
  const auto choose = [&](ValueId condition, ValueId a, ValueId b) {
    Op select{.code = Opcode::kSelect};
    select.type = type;
    return Emit1(select, {condition, a, b}, type);
  };
  switch (random_.Below(7)) {
    case 0:
      return choose(Compare(OneOf(random_, kIntCompare), type, moved, end), moved, end);
    case 1:
      return choose(Compare(OneOf(random_, kIntCompare), type, moved, end), Int(type, 0), moved);
    case 2:
      return choose(Compare(Opcode::kLtS, type, moved, end), moved, Binary(Opcode::kSub, type, end, moved));
    case 3:
      return Binary(Opcode::kAnd, type, moved, Int(type, (uint64_t{1} << random_.Between(4, 12)) - 1));
    case 4:
      return Binary(random_.Percent(50) ? Opcode::kShrS : Opcode::kShrU, type, moved, Int(type, random_.Below(12)));
    default: {
      static constexpr Opcode kDivisions[] = {Opcode::kDivS, Opcode::kDivU, Opcode::kRemS, Opcode::kRemU};
      // Neither 0 nor -1.
      const ValueId divisor = Binary(Opcode::kAnd, type, Binary(Opcode::kOr, type, end, Int(type, 1)),
                                     Int(type, type == kI32 ? 0xffffffef : ~uint64_t{16}));
      return Binary(OneOf(random_, kDivisions), type, moved, divisor);
    }
  }
}

// Converts a float to an integer, within range unless a trap is risked.
ValueId Generator::Truncate(Type type, uint32_t depth) {
  const Type from = random_.Percent(60) ? Type::kF32 : Type::kF64;
  ValueId value = Value(from, depth);
  if (random_.Percent(50)) {
    return Convert(random_.Percent(50) ? Opcode::kTruncSatS : Opcode::kTruncSatU, from, value, type);
  }
  const Opcode code = random_.Percent(60) ? Opcode::kTruncS : Opcode::kTruncU;
  if (!random_.Percent(traits_.risk)) {
    const bool is_single = from == Type::kF32;
    const ValueId most = Int(from, is_single ? 0x4b000000 : 0x4160000000000000);  // 2^23.
    const ValueId size = Unary(Opcode::kFAbs, from, value);
    Op select{.code = Opcode::kSelect};
    select.type = from;
    const ValueId inside = Compare(Opcode::kFLt, from, size, most);
    value = Emit1(select, {inside, code == Opcode::kTruncU ? size : value, Int(from, 0)}, from);
  }
  return Convert(code, from, value, type);
}

ValueId Generator::NoNan(Type type, ValueId value) {
  Op select{.code = Opcode::kSelect};
  select.type = type;
  const ValueId is_nan = Compare(Opcode::kFNe, type, value, value);
  return Emit1(select, {is_nan, Int(type, type == Type::kF32 ? 0x7fc00000 : 0x7ff8000000000000), value}, type);
}

ValueId Generator::IntValue(Type type, uint32_t depth) {
  const bool is_long = type == Type::kI64;
  const Opcode unary = is_long && random_.Percent(20) ? Opcode::kExtend32 : OneOf(random_, kIntUnary);
  const Opcode extend = random_.Percent(50) ? Opcode::kExtendS : Opcode::kExtendU;
  switch (random_.Below(16)) {
    case 0:
      return Unary(unary, type, Value(type, depth));
    case 1:
    case 2:
      return Divide(type, depth);
    case 3:
      return Truncate(type, depth);
    case 4:
      return is_long ? Convert(extend, kI32, Value(kI32, depth), type)
                     : Convert(Opcode::kWrap, Type::kI64, Value(Type::kI64, depth), type);
    case 5: {
      const Type from = is_long ? Type::kF64 : Type::kF32;
      return Convert(Opcode::kReinterpret, from, NoNan(from, Value(from, depth)), type);
    }
    case 6:
      return is_long ? Convert(Opcode::kExtendU, kI32, Condition(), type) : Condition();
    default: {
      const Opcode code = OneOf(random_, kIntBinary);
      const ValueId a = Value(type, depth), other = Value(type, depth);
      return Binary(code, type, a, other);
    }
  }
}

ValueId Generator::FloatValue(Type type, uint32_t depth) {
  const bool is_double = type == Type::kF64;
  const Opcode unary = OneOf(random_, kFloatUnary), binary = OneOf(random_, kFloatBinary);
  const Opcode convert = random_.Percent(50) ? Opcode::kConvertS : Opcode::kConvertU;
  switch (random_.Below(12)) {
    case 0:
    case 1:
      return Unary(unary, type, Value(type, depth));
    case 2: {
      const Type from = random_.Percent(60) ? kI32 : Type::kI64;
      return Convert(convert, from, Value(from, depth), type);
    }
    case 3:
      return is_double ? Convert(Opcode::kPromote, Type::kF32, Value(Type::kF32, depth), type)
                       : Convert(Opcode::kDemote, Type::kF64, Value(Type::kF64, depth), type);
    case 4: {
      const Type from = is_double ? Type::kI64 : kI32;
      return Convert(Opcode::kReinterpret, from, Value(from, depth), type);
    }
    default: {
      const ValueId a = Value(type, depth), other = Value(type, depth);
      // The sign of a NaN is open.
      return Binary(binary, type, a, binary == Opcode::kFCopysign ? NoNan(type, other) : other);
    }
  }
}

ValueId Generator::UniformCondition() {
  const Type type = random_.Percent(70) ? kI32 : Type::kI64;
  const Opcode code = OneOf(random_, kIntCompare);
  const ValueId a = PickUniform(type), other = Constant(type);
  return Compare(code, type, a, other);
}

ValueId Generator::Condition() {
  switch (random_.Below(8)) {
    case 0:
      return UniformCondition();
    case 1: {
      const ValueId value = Pick(kI32);
      return Masked(value, uint32_t{1} << random_.Below(4));
    }
    case 2: {
      const Type type = random_.Percent(60) ? Type::kF32 : Type::kF64;
      const Opcode code = OneOf(random_, kFloatCompare);
      const ValueId a = Pick(type), other = Pick(type);
      return Compare(code, type, a, other);
    }
    case 3: {
      const ValueId value = Pick(kI32);
      Op op{.code = Opcode::kEqz};
      op.type = kI32;
      return Emit1(op, {Masked(value, random_.Between(1, 7))}, kI32);
    }
    default: {
      const Type type = random_.Percent(75) ? kI32 : Type::kI64;
      const Opcode code = OneOf(random_, kIntCompare);
      const ValueId a = Pick(type);
      const ValueId other = random_.Percent(40) ? Constant(type) : Pick(type);
      return Compare(code, type, a, other);
    }
  }
}

}  // namespace hpvm::spmd
