// SPDX-License-Identifier: Apache-2.0
// Quotients and square roots of f32 on devices that have neither f64 nor exact operations: bit by bit on integers,
// rounded once. Slow (some 30 steps) and exact.
#include "compiler/back/vulkan/arithmetic.h"

#include <spirv/unified1/GLSL.std.450.h>

namespace hpvm::vulkan {

namespace {

constexpr uint32_t kNan = 0x7fc00000, kInfinity = 0x7f800000, kHidden = 0x00800000;

}  // namespace

// Value = significand * 2^(exponent - 150), with the significand in [2^23, 2^24); for finite non-zero numbers.
SoftFloats::SoftNumber SoftFloats::Unpack(SpvId magnitude) {
  const SpvId raw = c.ShrK(magnitude, 23);
  const SpvId fraction = c.AndK(magnitude, kHidden - 1);
  const SpvId is_small = c.Equal(raw, c.K(0));
  // A denormal is shifted up until its highest bit is the hidden one.
  const SpvId highest = w.Ext(GLSLstd450FindUMsb, c.U32(), {fraction});
  const SpvId shift = c.Sub(c.K(23), highest);
  const SpvId safe = c.AndK(shift, 31);
  SoftNumber number;
  number.significand = c.Select(c.U32(), is_small, c.Shl(fraction, safe), c.Or(fraction, c.K(kHidden)));
  number.exponent = c.Select(c.U32(), is_small, c.Sub(c.K(1), shift), raw);
  return number;
}

// Returns the float nearest to `quotient` * 2^(exponent - 127 - 25), whose significand is in [2^25, 2^26). The lowest
// bit of `quotient` is sticky: also set if any non-zero bit is below it. `exponent` is signed.
SpvId SoftFloats::Pack(SpvId quotient, SpvId exponent) {
  const SpvId u32 = c.U32();
  // Below the smallest normal exponent bits are shifted further down, and made sticky.
  const SpvId is_small = c.Test(spv::OpSLessThan, exponent, c.K(1));
  const SpvId wanted = c.Sub(c.K(1), exponent);
  const SpvId far = c.Test(spv::OpUGreaterThan, wanted, c.K(27));
  const SpvId drop = c.Select(u32, is_small, c.Select(u32, far, c.K(27), wanted), c.K(0));
  const SpvId kept = c.Shr(quotient, drop);
  const SpvId lost = c.Differ(c.Shl(kept, drop), quotient);
  const SpvId sticky = c.Or(kept, v_.Truth(lost));
  // Two bits below the last one: a half, and a sticky bit.
  const SpvId even = c.AndK(c.ShrK(sticky, 2), 1);
  const SpvId rounded = c.ShrK(c.Add(sticky, c.Add(even, c.K(1))), 2);
  // A normal's hidden bit adds the one that is taken from its exponent here; a carry propagates by itself.
  const SpvId biased = c.Select(u32, is_small, c.K(0), c.Sub(exponent, c.K(1)));
  const SpvId packed = c.Add(c.ShlK(biased, 23), rounded);
  const SpvId is_large = c.Test(spv::OpSGreaterThan, exponent, c.K(254));
  const SpvId overflows = c.Either(is_large, c.Test(spv::OpUGreaterThanEqual, packed, c.K(kInfinity)));
  return c.Select(u32, overflows, c.K(kInfinity), packed);
}

SpvId SoftFloats::SoftDivide() {
  const SpvId u32 = c.U32();
  return functions_.Function("divide_f32", u32, {u32, u32}, [&](std::span<const SpvId> params) {
    const SpvId sign = c.AndK(c.Xor(params[0], params[1]), 0x80000000);
    const SpvId a = c.AndK(params[0], 0x7fffffff);
    const SpvId b = c.AndK(params[1], 0x7fffffff);
    const auto give = [&](SpvId condition, SpvId value) {
      c.If(condition, [&] {
        w.Do(spv::OpReturnValue, {value});
        return false;
      });
    };
    const SpvId inf = c.K(kInfinity), zero = c.K(0);
    const SpvId a_nan = c.Test(spv::OpUGreaterThan, a, inf);
    const SpvId b_nan = c.Test(spv::OpUGreaterThan, b, inf);
    const SpvId both_inf = c.Both(c.Equal(a, inf), c.Equal(b, inf));
    const SpvId both_zero = c.Both(c.Equal(a, zero), c.Equal(b, zero));
    give(c.Either(c.Either(a_nan, b_nan), c.Either(both_inf, both_zero)), c.K(kNan));
    give(c.Either(c.Equal(a, inf), c.Equal(b, zero)), c.Or(sign, inf));
    give(c.Either(c.Equal(b, inf), c.Equal(a, zero)), sign);
    const SoftNumber x = Unpack(a);
    const SoftNumber y = Unpack(b);
    // The quotient of significands is in (1/2, 2); it is scaled to [1, 2).
    const SpvId is_less = c.Below(x.significand, y.significand);
    const SpvId numerator = c.Select(u32, is_less, c.ShlK(x.significand, 1), x.significand);
    const SpvId plain = c.Add(c.Sub(x.exponent, y.exponent), c.K(127));
    const SpvId exponent = c.Select(u32, is_less, c.Sub(plain, c.K(1)), plain);
    const SpvId rest = w.LocalVariable(u32, zero);
    const SpvId quotient = w.LocalVariable(u32, zero);
    c.Store(rest, numerator);
    c.For(zero, c.K(26), c.K(1), [&](SpvId) {
      const SpvId r = c.Load(u32, rest);
      const SpvId fits = c.Test(spv::OpUGreaterThanEqual, r, y.significand);
      const SpvId less = c.Select(u32, fits, c.Sub(r, y.significand), r);
      const SpvId bits = c.ShlK(c.Load(u32, quotient), 1);
      c.Store(quotient, c.Or(bits, v_.Truth(fits)));
      c.Store(rest, c.ShlK(less, 1));
    });
    const SpvId remains = c.Differ(c.Load(u32, rest), zero);
    const SpvId bits = c.Or(c.Load(u32, quotient), v_.Truth(remains));
    w.Do(spv::OpReturnValue, {c.Or(sign, Pack(bits, exponent))});
  });
}

SpvId SoftFloats::SoftSqrt() {
  const SpvId u32 = c.U32();
  return functions_.Function("sqrt_f32", u32, {u32}, [&](std::span<const SpvId> params) {
    const auto give = [&](SpvId condition, SpvId value) {
      c.If(condition, [&] {
        w.Do(spv::OpReturnValue, {value});
        return false;
      });
    };
    const SpvId a = params[0], zero = c.K(0);
    const SpvId magnitude = c.AndK(a, 0x7fffffff);
    give(c.Equal(magnitude, zero), a);
    give(c.Test(spv::OpUGreaterThan, a, c.K(kInfinity)), c.K(kNan));  // Includes negative numbers.
    give(c.Equal(a, c.K(kInfinity)), a);
    const SoftNumber x = Unpack(a);
    // With an even exponent: radicand in [1, 4), root in [1, 2). Computes 26 bits, with two of the radicand per step.
    const SpvId distance = c.Sub(x.exponent, c.K(127));
    const SpvId is_odd = c.AndK(distance, 1);
    const SpvId radicand = c.Shl(x.significand, is_odd);  // 25 bits, the first two before the point.
    const SpvId half = c.SarK(c.Sub(distance, is_odd), 1);
    const SpvId rest = w.LocalVariable(u32, zero);
    const SpvId root = w.LocalVariable(u32, zero);
    const SpvId left = w.LocalVariable(u32, zero);
    c.Store(left, c.ShlK(radicand, 7));
    c.For(zero, c.K(26), c.K(1), [&](SpvId) {
      const SpvId bits = c.Load(u32, left);
      const SpvId r = c.Or(c.ShlK(c.Load(u32, rest), 2), c.ShrK(bits, 30));
      const SpvId so_far = c.Load(u32, root);
      const SpvId trial = c.Or(c.ShlK(so_far, 2), c.K(1));
      const SpvId fits = c.Test(spv::OpUGreaterThanEqual, r, trial);
      c.Store(rest, c.Select(u32, fits, c.Sub(r, trial), r));
      c.Store(root, c.Or(c.ShlK(so_far, 1), v_.Truth(fits)));
      c.Store(left, c.ShlK(bits, 2));
    });
    const SpvId remains = c.Differ(c.Load(u32, rest), zero);
    const SpvId bits = c.Or(c.Load(u32, root), v_.Truth(remains));
    w.Do(spv::OpReturnValue, {Pack(bits, c.Add(half, c.K(127)))});
  });
}

}  // namespace hpvm::vulkan
