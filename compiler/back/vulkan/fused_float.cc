// SPDX-License-Identifier: Apache-2.0
// Quotients and square roots of f32 on devices whose fma is rounded once (GpuTarget::exact_fma), for operands that are
// neither very large nor very small; the caller handles the others (`rare`). Both begin with the device's InverseSqrt,
// which Vulkan requires to be within 2 ulp: the steps below give the bits of IEEE 754 for any start within 2^-21 of
// it, relatively (fused_float_test.cc runs the emitted code with perturbed starts). OpFDiv would do as well, but is no
// fast start everywhere: NVIDIA's driver rounds it correctly under RoundingModeRTE.
//
// Quotients (cf. P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Let
// x and y be scaled to integers in [2^23, 2^24). y0 is within 2^-19.9 of 1/y, so that one step makes y1 with |1 - y
// y1| <= D = 2^-48 y (1 + 2^-14): half an ulp, and the square of 2^-19.9. q0 is within 2 ulp of x/y and q1 within half
// an ulp (1 + 2^-20). So r1 = x - y q1 is exact, and q1 + r1 y1 differs from x/y by at most |x/y - q1| D. A quotient
// of two 24-bit numbers is not the midpoint of two floats. It is at least 2^-24 / y away from a midpoint where it is 1
// or more, and half an ulp is 2^-24 there; below 1 both are half of that. So the last rounding is right if D (1 +
// 2^-20) is less than 1 / y. That holds unless y is among the topmost 2^10 values, which are rare.
//
// Roots. One step makes g, which is within one float of the root of x: the square of 2^-21 is much less than an ulp.
// Tuckerman's test decides whether the root is nearer to a neighbour of g: to the one below if x <= below * g, to the
// one above if x > above * g. The sign of such a difference is right where fma is rounded once.
//
// Every difference is a multiple of 2^-48 times its operands' magnitude, so none is a denormal number.
#include "compiler/back/vulkan/arithmetic.h"

#include <spirv/unified1/GLSL.std.450.h>

namespace hpvm::vulkan {

namespace {

constexpr uint32_t kSign = 0x80000000, kFraction = 0x007fffff, kOne = 0x3f800000, kHalf = 0x3f000000;
constexpr uint32_t PowerOfTwo(int exponent) { return static_cast<uint32_t>(exponent + 127) << 23; }

// Operands of quotients are in [2^-62, 2^62), up to the sign. Roots are taken of [2^-76, 2^126).
constexpr uint32_t kQuotientLeast = PowerOfTwo(-62), kQuotientWidth = PowerOfTwo(62) - kQuotientLeast;
constexpr uint32_t kRootLeast = PowerOfTwo(-76), kRootWidth = PowerOfTwo(126) - kRootLeast;
constexpr uint32_t kTopFraction = 0x00800000 - (1 << 10);

}  // namespace

SpvId FusedFloats::F32() { return v_.m.TypeOf(ir::Type::kF32); }
SpvId FusedFloats::FloatOf(SpvId bits) { return c.Bits(F32(), bits); }

// Marks a single operation that must not be contracted with its neighbours.
SpvId FusedFloats::Alone(SpvId result) {
  w.Decorate(result, spv::DecorationNoContraction);
  return result;
}

SpvId FusedFloats::Multiply(SpvId a, SpvId b) { return Alone(w.Op(spv::OpFMul, F32(), {a, b})); }
SpvId FusedFloats::Fma(SpvId a, SpvId b, SpvId addend) { return Alone(w.Ext(GLSLstd450Fma, F32(), {a, b, addend})); }
SpvId FusedFloats::Negate(SpvId a) { return w.Op(spv::OpFNegate, F32(), {a}); }
SpvId FusedFloats::InverseRoot(SpvId a) { return w.Ext(GLSLstd450InverseSqrt, F32(), {a}); }

// Returns true if least <= bits < least + width, for bits without a sign; bits with a sign are above every range here.
SpvId FusedFloats::IsWithin(SpvId bits, uint32_t least, uint32_t width) {
  return c.Below(c.Sub(bits, c.K(least)), c.K(width));
}

SpvId FusedFloats::Choose(SpvId is_usual, const MakeValue& usual, const MakeValue& rare) {
  const SpvId result = w.LocalVariable(F32());
  c.IfElse(
      is_usual, [&] { c.Store(result, usual()); }, [&] { c.Store(result, rare()); });
  return c.Load(F32(), result);
}

SpvId FusedFloats::Divide(const std::function<SpvId(SpvId, SpvId)>& rare) {
  return functions_.Function("divide", F32(), {F32(), F32()}, [&](std::span<const SpvId> operands) {
    const SpvId x = operands[0], y = operands[1];
    const SpvId y_bits = c.Bits(c.U32(), y);
    const SpvId y_size = c.AndK(y_bits, ~kSign);
    const SpvId x_fits = IsWithin(c.AndK(c.Bits(c.U32(), x), ~kSign), kQuotientLeast, kQuotientWidth);
    const SpvId y_fits = IsWithin(y_size, kQuotientLeast, kQuotientWidth);
    const SpvId is_no_top = c.Below(c.AndK(y_bits, kFraction), c.K(kTopFraction));
    const SpvId both_fit = c.Both(x_fits, y_fits);
    const SpvId quotient = Choose(
        c.Both(both_fit, is_no_top),
        [&] {
          const SpvId root = InverseRoot(FloatOf(y_size));
          const SpvId size = c.Bits(c.U32(), Multiply(root, root));
          const SpvId y0 = FloatOf(c.Or(size, c.AndK(y_bits, kSign)));
          const SpvId less = Negate(y);
          const SpvId y1 = Fma(y0, Fma(less, y0, w.F32(kOne)), y0);
          const SpvId q0 = Multiply(x, y1);
          const SpvId q1 = Fma(Fma(less, q0, x), y1, q0);
          return Fma(Fma(less, q1, x), y1, q1);
        },
        [&] { return rare(x, y); });
    w.Do(spv::OpReturnValue, {quotient});
  });
}

// The square of InverseSqrt is within 2^-20 of the reciprocal, and one step improves it. The step is skipped where the
// divisor is a zero or an infinity, or so large that the square is a denormal number, which is accurate enough by
// itself.
SpvId FusedFloats::DivideNearly(SpvId a, SpvId b) {
  const SpvId bits = c.Bits(c.U32(), b);
  const SpvId root = InverseRoot(FloatOf(c.AndK(bits, ~kSign)));
  const SpvId size = c.Bits(c.U32(), Multiply(root, root));
  const SpvId start = FloatOf(c.Or(size, c.AndK(bits, kSign)));
  const SpvId error = Fma(Negate(b), start, w.F32(kOne));
  const SpvId is_small = c.Below(c.AndK(c.Bits(c.U32(), error), ~kSign), c.K(kHalf));
  return Multiply(a, c.Select(F32(), is_small, Fma(start, error, start), start));
}

SpvId FusedFloats::SquareRoot(const std::function<SpvId(SpvId)>& rare) {
  return functions_.Function("square_root", F32(), {F32()}, [&](std::span<const SpvId> operands) {
    const SpvId x = operands[0];
    const SpvId root = Choose(
        IsWithin(c.Bits(c.U32(), x), kRootLeast, kRootWidth),
        [&] {
          const SpvId y0 = InverseRoot(x);
          const SpvId g0 = Multiply(x, y0);
          const SpvId half = Multiply(y0, w.F32(kHalf));
          const SpvId g = Fma(Fma(Negate(g0), g0, x), half, g0);
          const SpvId bits = c.Bits(c.U32(), g);
          const SpvId below = FloatOf(c.Sub(bits, c.K(1)));
          const SpvId above = FloatOf(c.Add(bits, c.K(1)));
          const SpvId zero = w.F32(0);
          const SpvId is_below = c.Test(spv::OpFOrdLessThanEqual, Fma(Negate(below), g, x), zero);
          const SpvId is_above = c.Test(spv::OpFOrdGreaterThan, Fma(Negate(above), g, x), zero);
          const SpvId not_below = c.Select(F32(), is_above, above, g);
          return c.Select(F32(), is_below, below, not_below);
        },
        [&] { return rare(x); });
    w.Do(spv::OpReturnValue, {root});
  });
}

// Returns true if a - b is a number below zero. The device keeps denormal differences (but not with fma: NVIDIA's
// flushes them to zero), so two numbers that differ have a non-zero difference, and none has a wrong sign (Sterbenz).
// An infinity minus itself is a NaN, as is any difference with a NaN.
SpvId FusedFloats::IsBelow(SpvId a, SpvId b) {
  constexpr uint32_t kLeastNegative = 0x80000001;  // Denormal.
  const SpvId difference = Alone(w.Op(spv::OpFSub, F32(), {a, b}));
  const SpvId behind = c.Sub(c.Bits(c.U32(), difference), c.K(kLeastNegative));
  constexpr uint32_t kNumbers = 0x7f800000;  // Count of the numbers from there to minus infinity.
  return c.Below(behind, c.K(kNumbers));
}

}  // namespace hpvm::vulkan
