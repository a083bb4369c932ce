// SPDX-License-Identifier: Apache-2.0
// Integer and float arithmetic, and conversions. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_VULKAN_ARITHMETIC_H_
#define HPVMD_COMPILER_BACK_VULKAN_ARITHMETIC_H_

#include <functional>
#include <initializer_list>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/back/vulkan/control.h"
#include "compiler/back/vulkan/variant.h"

namespace hpvm::vulkan {

// SoftFloats computes quotients and square roots of f32 on integers, as functions from bits to bits (soft_float.cc).
class SoftFloats : private Room {
 public:
  SoftFloats(Variant& variant, Functions& functions) : Room(variant), functions_(functions) {}

  SpvId SoftDivide();
  SpvId SoftSqrt();

 private:
  struct SoftNumber {
    SpvId significand = 0, exponent = 0;
  };
  SoftNumber Unpack(SpvId magnitude);
  SpvId Pack(SpvId quotient, SpvId exponent);

  Functions& functions_;
};

// FusedFloats computes quotients, square roots and comparisons of f32 on devices with GpuTarget::exact_fma. The first
// two are functions, in which `rare` emits the result for operands that fma does not handle (fused_float.cc).
class FusedFloats : private Room {
 public:
  FusedFloats(Variant& variant, Functions& functions) : Room(variant), functions_(functions) {}

  SpvId Divide(const std::function<SpvId(SpvId, SpvId)>& rare);
  // Accurate to 2 ulp; denormal divisors count as zeros.
  SpvId DivideNearly(SpvId a, SpvId b);
  SpvId SquareRoot(const std::function<SpvId(SpvId)>& rare);
  SpvId IsBelow(SpvId a, SpvId b);  // False for NaNs.
  SpvId Fma(SpvId a, SpvId b, SpvId addend);
  SpvId Negate(SpvId a);

 private:
  SpvId F32();
  SpvId FloatOf(SpvId bits);
  SpvId Alone(SpvId result);
  SpvId Multiply(SpvId a, SpvId b);
  SpvId InverseRoot(SpvId a);
  SpvId IsWithin(SpvId bits, uint32_t least, uint32_t width);
  SpvId Choose(SpvId is_usual, const MakeValue& usual, const MakeValue& rare);

  Functions& functions_;
};

// Floats emits float operations; in emit_float.cc.
class Floats : private Room {
 public:
  Floats(Variant& variant, Functions& functions)
      : Room(variant), functions_(functions), soft_(variant, functions), fused_(variant, functions) {}

  SpvId EmitFloatUnary(const ir::Op& op, SpvId a);
  SpvId EmitApprox(const ir::Op& op, SpvId a);
  SpvId EmitFloatBinary(const ir::Op& op, SpvId a, SpvId b);
  // Emits a * b + c, -a * b + c and so on as one operation, for a function of the math library.
  SpvId EmitFused(SpvId a, SpvId b, SpvId c, bool negates_product, bool negates_sum);
  // Returns the extent to which the node's fast math applies to the operation.
  ir::FastMath FastMathOf(const ir::Op& op) const;
  bool IsFast(const ir::Op& op) const { return FastMathOf(op) == ir::FastMath::kAll; }
  // Returns true if products and sums of the math library are contracted here and not by the driver, which might
  // contract more.
  bool Contracts(const ir::Op& op) const;
  SpvId EmitConst(const ir::Op& op);
  SpvId CompareByBits(ir::Opcode code, SpvId a, SpvId b);
  SpvId Promote(SpvId a);
  SpvId IsNan(ir::Type type, SpvId a);
  SpvId Exact(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands);  // NoContraction.
  SpvId Opaque(ir::Type type, SpvId value);  // An operand of a float operation, hidden from drivers that err.
  SpvId BitsOf(ir::Type type, SpvId a);      // The integer of a float's width.
  SpvId FloatOf(ir::Type type, SpvId bits);

 private:
  SpvId EmitMinMax(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitDivideF32(const ir::Op& op, SpvId a, SpvId b);
  SpvId DivideWider(SpvId a, SpvId b);
  SpvId EmitSqrtF32(const ir::Op& op, SpvId a);
  SpvId Rounded(const ir::Op& op, spv::Op instruction, SpvId a, SpvId b);
  SpvId SqrtWider(SpvId a);
  SpvId OrderOf(SpvId a);
  SpvId CompareByOrder(ir::Opcode code, SpvId a, SpvId b);
  SpvId UnknownZero(ir::Type type);
  bool IsSeenAsBits(ir::ValueId value);
  bool IsExactOfAuthor(const ir::Op& op) const;
  bool HidesMasks(const ir::Op& op);
  bool IsHidden(const ir::Op& constant) const;
  SpvId Mask(ir::Type type, uint64_t mask, bool is_hidden);
  SpvId WithSign(ir::Type type, SpvId value, SpvId sign, bool is_hidden);  // All as bits.

  Functions& functions_;
  SoftFloats soft_;
  FusedFloats fused_;
  std::vector<bool> seen_as_bits_;  // Indexed by ValueId; empty until first used.
};

// Arithmetic emits arithmetic operations; in emit_integer.cc and emit_convert.cc.
class Arithmetic : private Room {
 public:
  Arithmetic(Variant& variant, Values& values, Floats& floats, Traps& traps)
      : Room(variant), values_(values), floats_(floats), traps_(traps) {}

  SpvId EmitArithmetic(const ir::Op& op);

 private:
  SpvId EmitContracted(const ir::Op& op);
  SpvId EmitIntUnary(const ir::Op& op, SpvId a);
  SpvId EmitIntBinary(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitDivision(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitCompare(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitConversion(const ir::Op& op, SpvId a);
  SpvId EmitTruncation(const ir::Op& op, SpvId a);

  Values& values_;
  Floats& floats_;
  Traps& traps_;
  const analysis::Definitions definitions_{v_.f};
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_ARITHMETIC_H_
