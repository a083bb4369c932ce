// SPDX-License-Identifier: Apache-2.0
// Conversions. A float outside an integer's range is never passed to the device, whose result would be undefined.
#include <bit>
#include <cmath>

#include "compiler/back/vulkan/arithmetic.h"

namespace hpvm::vulkan {

namespace {

uint64_t FloatBits(Type type, double value) {
  return type == Type::kF32 ? std::bit_cast<uint32_t>(static_cast<float>(value)) : std::bit_cast<uint64_t>(value);
}

}  // namespace

SpvId Arithmetic::EmitConversion(const ir::Op& op, SpvId a) {
  const SpvId to = v_.m.TypeOf(v_.f.type_of(op.first_result));
  switch (op.code) {
    case Opcode::kWrap:
    case Opcode::kExtendU:
      return w.Op(spv::OpUConvert, to, {a});
    case Opcode::kExtendS:
      return w.Op(spv::OpSConvert, to, {a});
    case Opcode::kConvertS:
      return w.Op(spv::OpConvertSToF, to, {a});
    case Opcode::kConvertU:
      return w.Op(spv::OpConvertUToF, to, {a});
    case Opcode::kDemote:
      return w.Op(spv::OpFConvert, to, {a});
    case Opcode::kPromote:
      return floats_.Promote(a);
    case Opcode::kReinterpret:
      return c.Bits(to, a);
    default:
      return EmitTruncation(op, a);
  }
}

SpvId Arithmetic::EmitTruncation(const ir::Op& op, SpvId a) {
  const Type from = op.type, to = v_.f.type_of(op.first_result);
  const bool is_signed = op.code == Opcode::kTruncS || op.code == Opcode::kTruncSatS;
  const bool saturates = op.code == Opcode::kTruncSatS || op.code == Opcode::kTruncSatU;
  const int bits = static_cast<int>(8 * ir::Bytes(to));
  // The range is (below, above), or [-2^(bits - 1), above) where the float type cannot represent the next lower
  // integer.
  const double above = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  const bool has_below = !is_signed || (from == Type::kF64 && bits == 32);
  const double below = is_signed ? -above - (has_below ? 1 : 0) : -1;
  const SpvId is_high = c.Test(spv::OpFOrdLessThan, a, v_.K(from, FloatBits(from, above)));
  const SpvId is_low =
      c.Test(has_below ? spv::OpFOrdGreaterThan : spv::OpFOrdGreaterThanEqual, a, v_.K(from, FloatBits(from, below)));
  const SpvId is_nan = floats_.IsNan(from, a);
  const SpvId is_number = c.Neither(is_nan);
  const SpvId fits = c.Both(c.Both(is_low, is_high), is_number);
  const spv::Op convert = is_signed ? spv::OpConvertFToS : spv::OpConvertFToU;
  const SpvId type = v_.m.TypeOf(to);
  if (!saturates) {
    traps_.TrapIf(is_nan, TrapCode::kInvalidConversion, op);
    traps_.TrapIf(c.Neither(fits), TrapCode::kIntegerOverflow, op);
    return w.Op(convert, type, {a});
  }
  const SpvId safe = c.Select(v_.m.TypeOf(from), fits, a, v_.K(from, 0));
  const SpvId value = w.Op(convert, type, {safe});
  const uint64_t ones = to == Type::kI32 ? 0xffffffffu : ~uint64_t{0};
  const uint64_t most = is_signed ? ones >> 1 : ones, least = is_signed ? (ones >> 1) + 1 : 0;
  const SpvId is_negative = c.Test(spv::OpFOrdLessThan, a, v_.K(from, 0));
  const SpvId limit = c.Select(type, is_negative, v_.K(to, least), v_.K(to, most));
  const SpvId outside = c.Select(type, is_nan, v_.K(to, 0), limit);
  return c.Select(type, fits, value, outside);
}

}  // namespace hpvm::vulkan
