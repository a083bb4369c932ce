// SPDX-License-Identifier: Apache-2.0
// i8x16 and i16x8: a word holds four or two lanes, and integer arithmetic on the word computes them all. Carries from
// one lane into the next are prevented: a lane's top bit is computed without its carry where needed, and comparisons
// leave their result in the top bit, which is then spread over the lane. See Warren, "Hacker's Delight", 2-18. All
// words are treated alike, which also suits back ends that gather equal operations into vectors.
#include "wabt/opcode.h"

#include "compiler/front/wasm/lower/simd_row.h"

namespace hpvm::wasm {
namespace {

using W = wabt::Opcode;

// Masks of each lane's lowest bit, of its highest bit, and of all bits but the highest.
uint32_t Ones(uint32_t bits) { return bits == 8 ? 0x01010101 : 0x00010001; }
uint32_t Tops(uint32_t bits) { return Ones(bits) << (bits - 1); }
uint32_t Rest(uint32_t bits) { return ~Tops(bits); }

// Returns lanes of ones where the top bit is set; the operand may have no other bit set.
ValueId Spread(const SimdCall& c, ValueId tops) {
  PureOps& ops = c.ops;
  return ops.Or(ops.Sub(tops, ops.ShrU(tops, c.row.bits - 1)), tops);
}

// Returns a where the mask is ones, else b.
ValueId Blend(PureOps& ops, ValueId mask, ValueId a, ValueId b) { return ops.Xor(b, ops.And(ops.Xor(a, b), mask)); }

ValueId Add(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  const uint32_t tops = Tops(c.row.bits), rest = Rest(c.row.bits);
  return ops.Xor(ops.Add(ops.And(a, rest), ops.And(b, rest)), ops.And(ops.Xor(a, b), tops));
}

// Computes a - b, except that the top bit is set when the rest of a is at least the rest of b.
ValueId PartialSub(const SimdCall& c, ValueId a, ValueId b) {
  return c.ops.Sub(c.ops.Or(a, Tops(c.row.bits)), c.ops.And(b, Rest(c.row.bits)));
}

ValueId Sub(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  const uint32_t tops = Tops(c.row.bits);
  return ops.Xor(PartialSub(c, a, b), ops.Xor(ops.And(ops.Xor(a, b), tops), tops));
}

ValueId Neg(const SimdCall& c, ValueId a) { return Sub(c, c.ops.Word(0), a); }

ValueId Abs(const SimdCall& c, ValueId a) {
  PureOps& ops = c.ops;
  const ValueId negative = ops.And(a, Tops(c.row.bits));
  return ops.Add(ops.Xor(a, Spread(c, negative)), ops.ShrU(negative, c.row.bits - 1));  // At most 0x7f + 1.
}

// Returns a mask of the lanes where a < b.
ValueId Less(const SimdCall& c, bool sign, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  const ValueId by_top = sign ? ops.And(a, ops.Not(b)) : ops.And(b, ops.Not(a));
  const ValueId by_rest = ops.Not(ops.Or(ops.Xor(a, b), PartialSub(c, a, b)));
  return Spread(c, ops.And(ops.Or(by_top, by_rest), Tops(c.row.bits)));
}

ValueId NotEqual(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  const uint32_t tops = Tops(c.row.bits), rest = Rest(c.row.bits);
  const ValueId differ = ops.Xor(a, b);
  return Spread(c, ops.And(ops.Or(ops.Add(ops.And(differ, rest), rest), differ), tops));
}

ValueId Compare(const SimdCall& c, ValueId a, ValueId b) {
  switch (c.row.code) {
    case Opcode::kEq:
      return c.ops.Not(NotEqual(c, a, b));
    case Opcode::kNe:
      return NotEqual(c, a, b);
    case Opcode::kLtS:
      return Less(c, true, a, b);
    case Opcode::kLtU:
      return Less(c, false, a, b);
    case Opcode::kGtS:
      return Less(c, true, b, a);
    case Opcode::kGtU:
      return Less(c, false, b, a);
    case Opcode::kLeS:
      return c.ops.Not(Less(c, true, b, a));
    case Opcode::kLeU:
      return c.ops.Not(Less(c, false, b, a));
    case Opcode::kGeS:
      return c.ops.Not(Less(c, true, a, b));
    default:
      return c.ops.Not(Less(c, false, a, b));
  }
}

ValueId Min(const SimdCall& c, ValueId a, ValueId b) { return Blend(c.ops, Less(c, c.row.sign, a, b), a, b); }
ValueId Max(const SimdCall& c, ValueId a, ValueId b) { return Blend(c.ops, Less(c, c.row.sign, a, b), b, a); }

// Returns the largest value where a is not negative, else the smallest.
ValueId Bound(const SimdCall& c, ValueId a) {
  const ValueId negative = c.ops.And(a, Tops(c.row.bits));
  return c.ops.Add(c.ops.ShrU(negative, c.row.bits - 1), Rest(c.row.bits));
}

ValueId AddSat(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  const ValueId sum = Add(c, a, b);
  if (c.row.sign) {
    const ValueId overflow = ops.And(ops.Xor(a, sum), ops.Not(ops.Xor(a, b)));
    return Blend(ops, Spread(c, ops.And(overflow, Tops(c.row.bits))), Bound(c, a), sum);
  }
  const ValueId carry = ops.Or(ops.And(a, b), ops.And(ops.Or(a, b), ops.Not(sum)));
  return ops.Or(sum, Spread(c, ops.And(carry, Tops(c.row.bits))));
}

ValueId SubSat(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  const ValueId difference = Sub(c, a, b);
  if (c.row.sign) {
    const ValueId overflow = ops.And(ops.Xor(a, difference), ops.Xor(a, b));
    return Blend(ops, Spread(c, ops.And(overflow, Tops(c.row.bits))), Bound(c, a), difference);
  }
  return ops.And(difference, ops.Not(Less(c, false, a, b)));
}

// Computes (a + b + 1) / 2 without the carry: the common bits, and half of the differing bits, rounded up.
ValueId Average(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  return ops.Sub(ops.Or(a, b), ops.ShrU(ops.And(ops.Xor(a, b), ~Ones(c.row.bits)), 1));
}

ValueId Popcnt(const SimdCall& c, ValueId a) {
  PureOps& ops = c.ops;
  const ValueId twos = ops.Sub(a, ops.And(ops.ShrU(a, 1), 0x55555555));
  const ValueId fours = ops.Add(ops.And(twos, 0x33333333), ops.And(ops.ShrU(twos, 2), 0x33333333));
  return ops.And(ops.Add(fours, ops.ShrU(fours, 4)), 0x0f0f0f0f);
}

// The lower half of the product of two words is the product of their lower lanes.
ValueId MulHalves(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  const ValueId high = ops.Mul(ops.ShrU(a, 16), ops.ShrU(b, 16));
  return PackHalves(ops, ops.Mul(a, b), high, false);
}

// Computes (a * b + 0x4000) >> 15; only -1 * -1 is too large.
ValueId MulQ15(PureOps& ops, ValueId a, ValueId b) {
  const ValueId product = ops.ShrS(ops.Add(ops.Mul(a, b), 0x4000), 15);
  return ops.Select(ops.Make(Opcode::kEq, product, 0x8000), ops.Word(0x7fff), product);
}

ValueId MulQ15Halves(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  const ValueId low = MulQ15(ops, HalfOf(ops, a, 0, true), HalfOf(ops, b, 0, true));
  const ValueId high = MulQ15(ops, HalfOf(ops, a, 1, true), HalfOf(ops, b, 1, true));
  return PackHalves(ops, low, high, false);
}

// Shifts the word and clears bits that came from the neighbouring lane. `stays` is the result for a lane of ones.
ValueId ShiftWord(const SimdCall& c, ValueId a, ValueId count, ValueId stays) {
  PureOps& ops = c.ops;
  if (c.row.code == Opcode::kShl) {
    return ops.And(ops.Shl(a, count), stays);
  }
  const ValueId shifted = ops.And(ops.ShrU(a, count), stays);
  if (c.row.code == Opcode::kShrU) {
    return shifted;
  }
  return ops.Or(shifted, ops.And(Spread(c, ops.And(a, Tops(c.row.bits))), ops.Not(stays)));
}

void Shift(SimdCall& c) {
  PureOps& ops = c.ops;
  const uint32_t bits = c.row.bits;
  const uint32_t lane = (uint32_t{1} << bits) - 1;
  const ValueId count = ops.And(c.stack.Pop(), bits - 1);
  const V128 a = c.stack.PopV128();
  const bool is_left = c.row.code == Opcode::kShl;
  const ValueId ones = is_left ? ops.And(ops.Shl(ops.Word(lane), count), lane) : ops.ShrU(ops.Word(lane), count);
  const ValueId stays = ops.Mul(ones, Ones(bits));
  V128 result;
  for (size_t i = 0; i < 4; ++i) {
    result[i] = ShiftWord(c, a[i], count, stays);
  }
  c.stack.PushV128(result);
}

constexpr auto kCompare = EachWord2<Compare>;
constexpr SimdRow kRows[] = {
    {W::I8X16Eq, kCompare, 8, {Opcode::kEq, Opcode::kGeU}},
    {W::I16X8Eq, kCompare, 16, {Opcode::kEq, Opcode::kGeU}},
    {W::I8X16Abs, EachWord1<Abs>, 8},
    {W::I8X16Neg, EachWord1<Neg>, 8},
    {W::I8X16Popcnt, EachWord1<Popcnt>, 8},
    {W::I8X16Shl, Shift, 8, {Opcode::kShl, Opcode::kShrU}},
    {W::I8X16Add, EachWord2<Add>, 8},
    {W::I8X16AddSatS, EachWord2<AddSat>, 8, Opcode::kAdd, true},
    {W::I8X16AddSatU, EachWord2<AddSat>, 8, Opcode::kAdd, false},
    {W::I8X16Sub, EachWord2<Sub>, 8},
    {W::I8X16SubSatS, EachWord2<SubSat>, 8, Opcode::kSub, true},
    {W::I8X16SubSatU, EachWord2<SubSat>, 8, Opcode::kSub, false},
    {W::I8X16MinS, EachWord2<Min>, 8, Opcode::kLtS, true},
    {W::I8X16MinU, EachWord2<Min>, 8, Opcode::kLtU, false},
    {W::I8X16MaxS, EachWord2<Max>, 8, Opcode::kLtS, true},
    {W::I8X16MaxU, EachWord2<Max>, 8, Opcode::kLtU, false},
    {W::I8X16AvgrU, EachWord2<Average>, 8},
    {W::I16X8Abs, EachWord1<Abs>, 16},
    {W::I16X8Neg, EachWord1<Neg>, 16},
    {W::I16X8Shl, Shift, 16, {Opcode::kShl, Opcode::kShrU}},
    {W::I16X8Add, EachWord2<Add>, 16},
    {W::I16X8AddSatS, EachWord2<AddSat>, 16, Opcode::kAdd, true},
    {W::I16X8AddSatU, EachWord2<AddSat>, 16, Opcode::kAdd, false},
    {W::I16X8Sub, EachWord2<Sub>, 16},
    {W::I16X8SubSatS, EachWord2<SubSat>, 16, Opcode::kSub, true},
    {W::I16X8SubSatU, EachWord2<SubSat>, 16, Opcode::kSub, false},
    {W::I16X8Mul, EachWord2<MulHalves>, 16},
    {W::I16X8Q15mulrSatS, EachWord2<MulQ15Halves>, 16},
    {W::I16X8MinS, EachWord2<Min>, 16, Opcode::kLtS, true},
    {W::I16X8MinU, EachWord2<Min>, 16, Opcode::kLtU, false},
    {W::I16X8MaxS, EachWord2<Max>, 16, Opcode::kLtS, true},
    {W::I16X8MaxU, EachWord2<Max>, 16, Opcode::kLtU, false},
    {W::I16X8AvgrU, EachWord2<Average>, 16},
};

}  // namespace

std::span<const SimdRow> SimdPackedRows() { return kRows; }

}  // namespace hpvm::wasm
