// SPDX-License-Identifier: Apache-2.0
// Integers, comparisons and select. Integer types are always unsigned; operations specify signedness.
#include "compiler/back/vulkan/arithmetic.h"

#include <spirv/unified1/GLSL.std.450.h>

namespace hpvm::vulkan {

SpvId Arithmetic::EmitArithmetic(const ir::Op& op) {
  using ir::Family;
  const SpvId a = op.operand_count > 0 ? values_.Operand(op, 0) : 0;
  const SpvId b = op.operand_count > 1 ? values_.Operand(op, 1) : 0;
  switch (ir::Info(op.code).family) {
    case Family::kConst:
      return floats_.EmitConst(op);
    case Family::kIntUnary:
      return EmitIntUnary(op, a);
    case Family::kIntBinary:
      return EmitIntBinary(op, a, b);
    case Family::kIntCompare:
    case Family::kFloatCompare:
      return EmitCompare(op, a, b);
    case Family::kFloatUnary:
      return floats_.EmitFloatUnary(op, a);
    case Family::kApprox:
      return floats_.EmitApprox(op, a);
    case Family::kFloatBinary:
      if (const ir::Op* root = analysis::ReciprocalRootIn(definitions_, v_.f, op);
          root != nullptr && floats_.IsFast(op) && floats_.IsFast(*root) && !v_.m.target.is_processor) {
        return w.Ext(GLSLstd450InverseSqrt, v_.m.TypeOf(op.type), {values_.Of(v_.f.operands_of(*root)[0])});
      }
      if (const SpvId fused = EmitContracted(op); fused != 0) {
        return fused;
      }
      return floats_.EmitFloatBinary(op, a, b);
    case Family::kConvert:
      return EmitConversion(op, a);
    default: {
      const SpvId condition = values_.ConditionOf(v_.f.operands_of(op)[0]);
      return c.Select(v_.m.TypeOf(op.type), condition, b, values_.Operand(op, 2));
    }
  }
}

// Returns a sum of a product in the math library as one operation; 0 if it is none. The library depends on which
// product is fused: never one that its caller passes to it.
SpvId Arithmetic::EmitContracted(const ir::Op& op) {
  if (!floats_.Contracts(op) || (op.code != Opcode::kFAdd && op.code != Opcode::kFSub)) {
    return 0;
  }
  for (uint32_t i = 0; i < 2; ++i) {
    const ir::Op* product = definitions_.OpOf(v_.f.operands_of(op)[i], Opcode::kFMul);
    if (product != nullptr && floats_.Contracts(*product) && product->origin == op.origin) {
      const bool is_sub = op.code == Opcode::kFSub;
      return floats_.EmitFused(values_.Operand(*product, 0), values_.Operand(*product, 1), values_.Operand(op, 1 - i),
                               is_sub && i == 1, is_sub && i == 0);
    }
  }
  return 0;
}

// Operates on the bits of a value, 32 at a time: GLSL's searches and OpBitCount are limited to 32 bits.
SpvId Arithmetic::EmitIntUnary(const ir::Op& op, SpvId a) {
  const SpvId type = v_.m.TypeOf(op.type);
  const uint32_t bits = 8 * ir::Bytes(op.type);
  if (op.code == Opcode::kExtend8 || op.code == Opcode::kExtend16 || op.code == Opcode::kExtend32) {
    const uint32_t kept = op.code == Opcode::kExtend8 ? 8 : op.code == Opcode::kExtend16 ? 16 : 32;
    const SpvId up = w.Op(spv::OpShiftLeftLogical, type, {a, c.K(bits - kept)});
    return w.Op(spv::OpShiftRightArithmetic, type, {up, c.K(bits - kept)});
  }
  const auto count = [&](SpvId word) {
    if (op.code == Opcode::kPopcnt) {
      return w.Op(spv::OpBitCount, c.U32(), {word});
    }
    if (op.code == Opcode::kClz) {  // The highest bit's number is -1 for 0.
      return c.Sub(c.K(31), w.Ext(GLSLstd450FindUMsb, c.U32(), {word}));
    }
    return w.Ext(GLSLstd450UMin, c.U32(), {w.Ext(GLSLstd450FindILsb, c.U32(), {word}), c.K(32)});
  };
  if (bits == 32) {
    return count(a);
  }
  const SpvId low = w.Op(spv::OpUConvert, c.U32(), {a});
  const SpvId upper = w.Op(spv::OpShiftRightLogical, type, {a, c.K(32)});
  const SpvId high = w.Op(spv::OpUConvert, c.U32(), {upper});
  const SpvId first = count(op.code == Opcode::kCtz ? low : high);
  const SpvId second = count(op.code == Opcode::kCtz ? high : low);
  const SpvId both = c.Add(first, second);
  const SpvId full = op.code == Opcode::kPopcnt ? w.True() : c.Equal(first, c.K(32));
  return w.Op(spv::OpUConvert, type, {c.Select(c.U32(), full, both, first)});
}

SpvId Arithmetic::EmitIntBinary(const ir::Op& op, SpvId a, SpvId b) {
  const SpvId type = v_.m.TypeOf(op.type);
  const uint32_t bits = 8 * ir::Bytes(op.type);
  const auto plain = [&](spv::Op code) { return w.Op(code, type, {a, b}); };
  const auto shift = [&](spv::Op code) {
    uint32_t known = 0;
    const SpvId count =
        w.IsU32(b, &known) ? c.K(known % bits) : w.Op(spv::OpBitwiseAnd, type, {b, v_.K(op.type, bits - 1)});
    return w.Op(code, type, {a, count});
  };
  switch (op.code) {
    case Opcode::kAdd:
      return bits == 32 ? c.Add(a, b) : plain(spv::OpIAdd);
    case Opcode::kSub:
      return plain(spv::OpISub);
    case Opcode::kMul:
      return plain(spv::OpIMul);
    case Opcode::kAnd:
      return plain(spv::OpBitwiseAnd);
    case Opcode::kOr:
      return plain(spv::OpBitwiseOr);
    case Opcode::kXor:
      return plain(spv::OpBitwiseXor);
    case Opcode::kShl:
      return shift(spv::OpShiftLeftLogical);
    case Opcode::kShrS:
      return shift(spv::OpShiftRightArithmetic);
    case Opcode::kShrU:
      return shift(spv::OpShiftRightLogical);
    case Opcode::kRotl:
    case Opcode::kRotr: {
      const bool left = op.code == Opcode::kRotl;
      const SpvId count = w.Op(spv::OpBitwiseAnd, type, {b, v_.K(op.type, bits - 1)});
      const SpvId negated = w.Op(spv::OpISub, type, {v_.K(op.type, 0), count});
      const SpvId rest = w.Op(spv::OpBitwiseAnd, type, {negated, v_.K(op.type, bits - 1)});
      const SpvId one = w.Op(left ? spv::OpShiftLeftLogical : spv::OpShiftRightLogical, type, {a, count});
      const SpvId other = w.Op(left ? spv::OpShiftRightLogical : spv::OpShiftLeftLogical, type, {a, rest});
      return w.Op(spv::OpBitwiseOr, type, {one, other});
    }
    default:
      return EmitDivision(op, a, b);
  }
}

// Vulkan leaves OpSRem of negative operands undefined, so remainders are computed from quotients.
SpvId Arithmetic::EmitDivision(const ir::Op& op, SpvId a, SpvId b) {
  const SpvId type = v_.m.TypeOf(op.type);
  const uint64_t lowest = op.type == Type::kI32 ? uint64_t{1} << 31 : uint64_t{1} << 63;
  const uint64_t minus_one = op.type == Type::kI32 ? 0xffffffffu : ~uint64_t{0};
  traps_.TrapIf(c.Equal(b, v_.K(op.type, 0)), TrapCode::kDivideByZero, op);
  switch (op.code) {
    case Opcode::kDivU:
      return w.Op(spv::OpUDiv, type, {a, b});
    case Opcode::kRemU:
      return w.Op(spv::OpUMod, type, {a, b});
    case Opcode::kDivS: {
      const SpvId is_lowest = c.Equal(a, v_.K(op.type, lowest));
      const SpvId is_minus_one = c.Equal(b, v_.K(op.type, minus_one));
      traps_.TrapIf(c.Both(is_lowest, is_minus_one), TrapCode::kIntegerOverflow, op);
      return w.Op(spv::OpSDiv, type, {a, b});
    }
    default: {
      const SpvId is_minus_one = c.Equal(b, v_.K(op.type, minus_one));
      const SpvId by = c.Select(type, is_minus_one, v_.K(op.type, 1), b);  // The remainder by 1 or -1 is 0.
      const SpvId quotient = w.Op(spv::OpSDiv, type, {a, by});
      const SpvId product = w.Op(spv::OpIMul, type, {quotient, by});
      return w.Op(spv::OpISub, type, {a, product});
    }
  }
}

SpvId Arithmetic::EmitCompare(const ir::Op& op, SpvId a, SpvId b) {
  struct Comparison {
    Opcode code;
    spv::Op op;
  };
  static constexpr Comparison kComparisons[] = {
      {Opcode::kEq, spv::OpIEqual},          {Opcode::kNe, spv::OpINotEqual},
      {Opcode::kLtS, spv::OpSLessThan},      {Opcode::kLtU, spv::OpULessThan},
      {Opcode::kGtS, spv::OpSGreaterThan},   {Opcode::kGtU, spv::OpUGreaterThan},
      {Opcode::kLeS, spv::OpSLessThanEqual}, {Opcode::kLeU, spv::OpULessThanEqual},
      {Opcode::kGeS, spv::OpSGreaterThanEqual}, {Opcode::kGeU, spv::OpUGreaterThanEqual},
      {Opcode::kFEq, spv::OpFOrdEqual},      {Opcode::kFNe, spv::OpFUnordNotEqual},
      {Opcode::kFLt, spv::OpFOrdLessThan},   {Opcode::kFGt, spv::OpFOrdGreaterThan},
      {Opcode::kFLe, spv::OpFOrdLessThanEqual}, {Opcode::kFGe, spv::OpFOrdGreaterThanEqual},
  };
  SpvId condition = 0;
  if (op.code == Opcode::kEqz) {
    const SpvId inner = values_.KnownCondition(v_.f.operands_of(op)[0]);
    condition = inner != 0 ? c.Neither(inner) : c.Equal(a, v_.K(op.type, 0));
  }
  if (a == b && (op.code == Opcode::kFNe || op.code == Opcode::kFEq)) {
    // A test for NaNs, which drivers' compilers simplify as if the bits of a NaN were never used.
    const SpvId is_nan = floats_.IsNan(op.type, a);
    condition = op.code == Opcode::kFNe ? is_nan : c.Neither(is_nan);
  }
  const bool is_float = ir::Info(op.code).family == ir::Family::kFloatCompare;
  if (is_float && condition == 0 && op.type == Type::kF32 && !v_.m.target.keeps_denormals && !v_.options.fast_math) {
    condition = floats_.CompareByBits(op.code, a, b);
  }
  for (const Comparison& comparison : kComparisons) {
    if (comparison.code == op.code && condition == 0) {
      condition = c.Test(comparison.op, a, b);
    }
  }
  values_.SetCondition(op.first_result, condition);
  return v_.Truth(condition);
}

}  // namespace hpvm::vulkan
