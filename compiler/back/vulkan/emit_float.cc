// SPDX-License-Identifier: Apache-2.0
// Floats. Details that Vulkan leaves open are computed on bits: signs, NaNs, the order of zeros, minimum and maximum.
// Sums and products are correctly rounded in Vulkan and must not be contracted. A quotient or root of f32 may be off
// by 2.5 ulp. Both are computed with fma where that is rounded once (fused_float.cc). Other devices compute them in
// f64, where double rounding is innocuous (53 bits are more than 2 * 24 + 1; S. Figueroa, "When is double rounding
// innocuous?", SIGNUM 1995), or bit by bit where there is no f64.
#include "compiler/back/vulkan/arithmetic.h"
#include "compiler/ir/walk.h"

#include <spirv/unified1/GLSL.std.450.h>

namespace hpvm::vulkan {

namespace {

uint64_t SignBit(Type type) { return type == Type::kF32 ? uint64_t{1} << 31 : uint64_t{1} << 63; }
uint64_t MagnitudeBits(Type type) { return SignBit(type) - 1; }
uint64_t Infinity(Type type) { return type == Type::kF32 ? 0x7f800000u : 0x7ff0000000000000u; }
uint64_t QuietNan(Type type) { return type == Type::kF32 ? 0x7fc00000u : 0x7ff8000000000000u; }
Type IntOf(Type type) { return type == Type::kF32 ? Type::kI32 : Type::kI64; }

}  // namespace

SpvId Floats::Exact(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands) {
  const SpvId result = w.Op(op, type, operands);
  if (!v_.options.fast_math) {
    w.Decorate(result, spv::DecorationNoContraction);
  }
  return result;
}

ir::FastMath Floats::FastMathOf(const ir::Op& op) const {
  const uint32_t written = op.origin != 0 ? op.origin - 1 : v_.module.entry.index;
  return v_.options.fast_math ? v_.module.functions[written].fast_math : ir::FastMath::kNone;
}

bool Floats::Contracts(const ir::Op& op) const {
  return v_.m.target.exact_fma && op.type == Type::kF32 && FastMathOf(op) == ir::FastMath::kContract;
}

SpvId Floats::EmitFused(SpvId a, SpvId b, SpvId c, bool negates_product, bool negates_sum) {
  return fused_.Fma(negates_product ? fused_.Negate(a) : a, b, negates_sum ? fused_.Negate(c) : c);
}

// In fast math the driver may contract operations, except those of the math library that are contracted here.
SpvId Floats::Rounded(const ir::Op& op, spv::Op instruction, SpvId a, SpvId b) {
  const SpvId result = w.Op(instruction, v_.m.TypeOf(op.type), {a, b});
  if (FastMathOf(op) == ir::FastMath::kNone || Contracts(op)) {
    w.Decorate(result, spv::DecorationNoContraction);
  }
  return result;
}

SpvId Floats::BitsOf(Type type, SpvId a) { return c.Bits(v_.m.TypeOf(IntOf(type)), a); }
SpvId Floats::FloatOf(Type type, SpvId bits) { return c.Bits(v_.m.TypeOf(type), bits); }

// Tests bits, because a driver may assume that there are no NaNs.
SpvId Floats::IsNan(Type type, SpvId a) {
  const SpvId bits = BitsOf(type, a);
  const SpvId magnitude =
      w.Op(spv::OpBitwiseAnd, v_.m.TypeOf(IntOf(type)), {bits, v_.K(IntOf(type), MagnitudeBits(type))});
  return c.Test(spv::OpUGreaterThan, magnitude, v_.K(IntOf(type), Infinity(type)));
}

// Returns true if an operation other than a sum, product, quotient, root or comparison uses the value.
bool Floats::IsSeenAsBits(ValueId value) {
  if (seen_as_bits_.empty()) {
    seen_as_bits_.resize(v_.f.values.size());
    ir::ForEachOp(v_.f, [&](ir::OpId id) {
      const ir::Op& op = v_.f.op(id);
      const bool is_arithmetic = op.code == Opcode::kFAdd || op.code == Opcode::kFSub || op.code == Opcode::kFMul ||
                                 op.code == Opcode::kFDiv || op.code == Opcode::kFSqrt ||
                                 ir::Info(op.code).family == ir::Family::kFloatCompare;
      for (const ValueId operand : v_.f.operands_of(op)) {
        seen_as_bits_[operand.index] = seen_as_bits_[operand.index] || !is_arithmetic;
      }
    });
  }
  return seen_as_bits_[value.index];
}

// Returns true for an author's operation in exact math. The math library needs no help: gpu_math_test verifies it on
// that driver.
bool Floats::IsExactOfAuthor(const ir::Op& op) const {
  const uint32_t written = op.origin != 0 ? op.origin - 1 : v_.module.entry.index;
  return !v_.options.fast_math && v_.module.functions[written].fast_math == ir::FastMath::kAll;
}

// NVIDIA's compiler recognizes changes of a sign by their masks and turns them into float operations, which flush
// denormals to zero. If the result's bits are used, the mask is hidden from it.
bool Floats::HidesMasks(const ir::Op& op) {
  return op.type == Type::kF32 && !v_.m.target.is_processor && !v_.m.target.keeps_denormals && IsExactOfAuthor(op) &&
         IsSeenAsBits(op.first_result);
}

SpvId Floats::Mask(Type type, uint64_t mask, bool is_hidden) {
  const SpvId known = v_.K(IntOf(type), mask);
  return is_hidden ? w.Op(spv::OpBitwiseXor, v_.m.TypeOf(IntOf(type)), {known, UnknownZero(IntOf(type))}) : known;
}

// Returns `value` with the sign of `sign`, both as bits.
SpvId Floats::WithSign(Type type, SpvId value, SpvId sign, bool is_hidden) {
  const SpvId bits = v_.m.TypeOf(IntOf(type));
  const SpvId magnitude = w.Op(spv::OpBitwiseAnd, bits, {value, Mask(type, MagnitudeBits(type), is_hidden)});
  const SpvId top = w.Op(spv::OpBitwiseAnd, bits, {sign, Mask(type, SignBit(type), is_hidden)});
  return w.Op(spv::OpBitwiseOr, bits, {magnitude, top});
}

SpvId Floats::EmitFloatUnary(const ir::Op& op, SpvId a) {
  const Type type = op.type;
  const SpvId bits_type = v_.m.TypeOf(IntOf(type));
  switch (op.code) {
    case Opcode::kFAbs: {
      const SpvId bits = BitsOf(type, a);
      return FloatOf(type, w.Op(spv::OpBitwiseAnd, bits_type, {bits, Mask(type, MagnitudeBits(type), HidesMasks(op))}));
    }
    case Opcode::kFNeg: {
      const SpvId bits = BitsOf(type, a);
      return FloatOf(type, w.Op(spv::OpBitwiseXor, bits_type, {bits, Mask(type, SignBit(type), HidesMasks(op))}));
    }
    case Opcode::kFSqrt:
      return type == Type::kF32 ? EmitSqrtF32(op, a) : w.Ext(GLSLstd450Sqrt, v_.m.TypeOf(type), {a});
    default:
      break;
  }
  const uint32_t instruction = op.code == Opcode::kFCeil    ? GLSLstd450Ceil
                               : op.code == Opcode::kFFloor ? GLSLstd450Floor
                               : op.code == Opcode::kFTrunc ? GLSLstd450Trunc
                                                            : GLSLstd450RoundEven;
  const SpvId rounded = w.Ext(instruction, v_.m.TypeOf(type), {a});
  if (v_.options.fast_math) {
    return rounded;
  }
  // Rounding keeps the sign, also of zeros.
  const SpvId value = BitsOf(type, rounded);
  const SpvId sign = BitsOf(type, a);
  return FloatOf(type, WithSign(type, value, sign, HidesMasks(op)));
}

SpvId Floats::EmitApprox(const ir::Op& op, SpvId a) {
  const uint32_t instruction = op.code == Opcode::kApproxSin    ? GLSLstd450Sin
                               : op.code == Opcode::kApproxCos  ? GLSLstd450Cos
                               : op.code == Opcode::kApproxExp2 ? GLSLstd450Exp2
                                                                : GLSLstd450Log2;
  return w.Ext(instruction, v_.m.TypeOf(op.type), {a});
}

// Returns a zero of an integer type whose low 32 bits are unknown to every compiler, because ids are below 2^31.
SpvId Floats::UnknownZero(Type type) {
  const SpvId first = v_.Argument32(GpuArgument::Kind::kFirst, 0);
  const SpvId zero = w.Op(spv::OpShiftRightArithmetic, c.U32(), {first, c.K(31)});
  return type == Type::kI32 ? zero : w.Op(spv::OpUConvert, v_.m.TypeOf(type), {zero});
}

// Hides an operand of a sum, product or quotient. Lavapipe's code generator simplifies 0 + x, 0 * x and 0 / x as if x
// were an ordinary number, and its passes find zeros that are not visible in the kernel: in loops that they unroll, in
// memory just written. There the operand must be unknown to compilers.
SpvId Floats::Opaque(Type type, SpvId value) {
  if (!v_.m.target.is_processor || v_.options.fast_math) {
    return value;
  }
  const SpvId zero = UnknownZero(IntOf(type));
  const SpvId bits = BitsOf(type, value);
  return FloatOf(type, w.Op(spv::OpBitwiseOr, v_.m.TypeOf(IntOf(type)), {bits, zero}));
}

// Mesa's passes turn a choice between 1 and 0 or -1 and -0 into a conversion of its condition, even a choice between 1
// and -0 or -1 and 0, or between the integers with those bits. So the ones are hidden from them. NVIDIA's compiler
// treats a choice between 0 and -0 as one between equal numbers, so -0 is hidden from it.
bool Floats::IsHidden(const ir::Op& constant) const {
  const bool is_wide = ir::Bytes(constant.type) == 8;
  const Type as_float = is_wide ? Type::kF64 : Type::kF32;
  if (v_.m.target.is_processor) {
    return (constant.imm & MagnitudeBits(as_float)) == (is_wide ? 0x3ff0000000000000 : 0x3f800000);
  }
  return constant.type == as_float && constant.imm == SignBit(as_float) && IsExactOfAuthor(constant);
}

SpvId Floats::EmitConst(const ir::Op& op) {
  if (!IsHidden(op)) {
    return v_.K(op.type, op.imm);
  }
  const Type as_int = ir::Bytes(op.type) == 8 ? Type::kI64 : Type::kI32;
  const SpvId hidden = w.Op(spv::OpBitwiseOr, v_.m.TypeOf(as_int), {v_.K(as_int, op.imm), UnknownZero(as_int)});
  return c.Bits(v_.m.TypeOf(op.type), hidden);
}

SpvId Floats::EmitFloatBinary(const ir::Op& op, SpvId a, SpvId b) {
  if (op.code == Opcode::kFAdd || op.code == Opcode::kFSub || op.code == Opcode::kFMul || op.code == Opcode::kFDiv) {
    a = Opaque(op.type, a);
    b = Opaque(op.type, b);
  }
  switch (op.code) {
    case Opcode::kFAdd:
      return Rounded(op, spv::OpFAdd, a, b);
    case Opcode::kFSub:
      return Rounded(op, spv::OpFSub, a, b);
    case Opcode::kFMul:
      return Rounded(op, spv::OpFMul, a, b);
    case Opcode::kFDiv:
      return op.type == Type::kF32 ? EmitDivideF32(op, a, b) : Rounded(op, spv::OpFDiv, a, b);
    case Opcode::kFCopysign: {
      const SpvId value = BitsOf(op.type, a);
      const SpvId sign = BitsOf(op.type, b);
      return FloatOf(op.type, WithSign(op.type, value, sign, HidesMasks(op)));
    }
    default:
      return EmitMinMax(op, a, b);
  }
}

// Bits of floats that are not NaNs compare as signed integers once the magnitude bits of negative ones are inverted;
// then -0 is below +0.
SpvId Floats::EmitMinMax(const ir::Op& op, SpvId a, SpvId b) {
  const Type bits_type = IntOf(op.type);
  const SpvId bits = v_.m.TypeOf(bits_type);
  const uint32_t width = 8 * ir::Bytes(op.type);
  const auto key = [&](SpvId value) {
    const SpvId plain = BitsOf(op.type, value);
    const SpvId sign = w.Op(spv::OpShiftRightArithmetic, bits, {plain, c.K(width - 1)});
    const SpvId mask = w.Op(spv::OpBitwiseAnd, bits, {sign, v_.K(bits_type, MagnitudeBits(op.type))});
    return w.Op(spv::OpBitwiseXor, bits, {plain, mask});
  };
  const SpvId first = key(a);
  const SpvId second = key(b);
  const SpvId is_first = c.Test(op.code == Opcode::kFMin ? spv::OpSLessThan : spv::OpSGreaterThan, first, second);
  const SpvId chosen = c.Select(v_.m.TypeOf(op.type), is_first, a, b);
  const SpvId first_nan = IsNan(op.type, a);
  const SpvId second_nan = IsNan(op.type, b);
  return c.Select(v_.m.TypeOf(op.type), c.Either(first_nan, second_nan), v_.K(op.type, QuietNan(op.type)), chosen);
}

// NVIDIA's driver rounds OpFDiv correctly under RoundingModeRTE, but slowly.
SpvId Floats::EmitDivideF32(const ir::Op& op, SpvId a, SpvId b) {
  const SpvId f32 = v_.m.TypeOf(Type::kF32);
  if (IsFast(op) && v_.m.target.exact_fma && v_.m.target.rounds_to_even) {
    return fused_.DivideNearly(a, b);
  }
  if (IsFast(op) || v_.m.target.exact_divide) {
    return Exact(spv::OpFDiv, f32, {a, b});
  }
  if (!v_.m.target.exact_fma) {
    return DivideWider(a, b);
  }
  return functions_.Call(f32, fused_.Divide([&](SpvId x, SpvId y) { return DivideWider(x, y); }), {a, b});
}

SpvId Floats::DivideWider(SpvId a, SpvId b) {
  if (!v_.m.target.has_fp64) {
    const SpvId x = BitsOf(Type::kF32, a);
    const SpvId y = BitsOf(Type::kF32, b);
    return FloatOf(Type::kF32, functions_.Call(c.U32(), soft_.SoftDivide(), {x, y}));
  }
  const SpvId x = Promote(a);
  const SpvId y = Promote(b);
  return w.Op(spv::OpFConvert, v_.m.TypeOf(Type::kF32), {Exact(spv::OpFDiv, v_.m.TypeOf(Type::kF64), {x, y})});
}

// Converts f32 to f64. A driver that need not keep denormals flushes them to zero here and in comparisons, whatever it
// does in sums and products.
SpvId Floats::Promote(SpvId a) {
  constexpr uint64_t kLeast = 0x36a0000000000000;  // 2^-149, the unit of denormals.
  const SpvId f64 = v_.m.TypeOf(Type::kF64);
  const SpvId plain = w.Op(spv::OpFConvert, f64, {a});
  if (v_.options.fast_math || v_.m.target.keeps_denormals) {
    return plain;
  }
  const SpvId bits = BitsOf(Type::kF32, a);
  const SpvId magnitude = c.AndK(bits, 0x7fffffff);
  const SpvId is_denormal = c.Below(c.Sub(magnitude, c.K(1)), c.K(0x007fffff));
  const SpvId units = w.Op(spv::OpConvertUToF, f64, {magnitude});
  const SpvId positive = Exact(spv::OpFMul, f64, {units, v_.K(Type::kF64, kLeast)});
  const SpvId negative = w.Op(spv::OpFNegate, f64, {positive});
  const SpvId is_negative = c.Test(spv::OpSLessThan, bits, c.K(0));
  return c.Select(f64, is_denormal, c.Select(f64, is_negative, negative, positive), plain);
}

// Returns an i32 that orders numbers (not NaNs); equal for both zeros.
SpvId Floats::OrderOf(SpvId a) {
  const SpvId bits = BitsOf(Type::kF32, a);
  const SpvId is_negative = c.Test(spv::OpSLessThan, bits, c.K(0));
  return c.Select(c.U32(), is_negative, c.Sub(c.K(0x80000000), bits), bits);
}

SpvId Floats::CompareByOrder(Opcode code, SpvId a, SpvId b) {
  const SpvId x = OrderOf(a);
  const SpvId y = OrderOf(b);
  switch (code) {
    case Opcode::kFEq:
      return c.Equal(x, y);
    case Opcode::kFLt:
      return c.Test(spv::OpSLessThan, x, y);
    case Opcode::kFGt:
      return c.Test(spv::OpSGreaterThan, x, y);
    case Opcode::kFLe:
      return c.Test(spv::OpSLessThanEqual, x, y);
    default:
      return c.Test(spv::OpSGreaterThanEqual, x, y);
  }
}

// Compares f32 for drivers that flush denormals to zero in comparisons.
SpvId Floats::CompareByBits(Opcode code, SpvId a, SpvId b) {
  // NVIDIA's driver keeps denormals in sums under RoundingModeRTE (docs/GPU.md). No property reports this; devices not
  // known to do it compare by bits.
  const bool keeps_in_sums = v_.m.target.exact_fma && v_.m.target.rounds_to_even;
  if (keeps_in_sums && (code == Opcode::kFLt || code == Opcode::kFGt)) {
    return code == Opcode::kFLt ? fused_.IsBelow(a, b) : fused_.IsBelow(b, a);
  }
  const SpvId is_unordered = c.Either(IsNan(Type::kF32, a), IsNan(Type::kF32, b));
  if (keeps_in_sums && (code == Opcode::kFLe || code == Opcode::kFGe)) {
    return c.Neither(c.Either(is_unordered, code == Opcode::kFLe ? fused_.IsBelow(b, a) : fused_.IsBelow(a, b)));
  }
  if (code == Opcode::kFNe) {
    return c.Either(is_unordered, c.Neither(CompareByOrder(Opcode::kFEq, a, b)));
  }
  return c.Both(c.Neither(is_unordered), CompareByOrder(code, a, b));
}

SpvId Floats::EmitSqrtF32(const ir::Op& op, SpvId a) {
  const SpvId f32 = v_.m.TypeOf(Type::kF32);
  if (IsFast(op) || v_.m.target.exact_divide) {
    return w.Ext(GLSLstd450Sqrt, f32, {a});
  }
  if (!v_.m.target.exact_fma) {
    return SqrtWider(a);
  }
  return functions_.Call(f32, fused_.SquareRoot([&](SpvId x) { return SqrtWider(x); }), {a});
}

SpvId Floats::SqrtWider(SpvId a) {
  if (!v_.m.target.has_fp64) {
    return FloatOf(Type::kF32, functions_.Call(c.U32(), soft_.SoftSqrt(), {BitsOf(Type::kF32, a)}));
  }
  const SpvId wide = Promote(a);
  return w.Op(spv::OpFConvert, v_.m.TypeOf(Type::kF32), {w.Ext(GLSLstd450Sqrt, v_.m.TypeOf(Type::kF64), {wide})});
}

}  // namespace hpvm::vulkan
