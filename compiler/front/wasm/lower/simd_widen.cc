// SPDX-License-Identifier: Apache-2.0
// Integer instructions whose result has lanes of another width than their operands.
#include <array>

#include "wabt/opcode.h"

#include "compiler/front/wasm/lower/simd_row.h"

namespace hpvm::wasm {

ValueId ByteOf(PureOps& ops, ValueId word, uint32_t index, bool sign) {
  if (index == 3) {
    return sign ? ops.ShrS(word, 24) : ops.ShrU(word, 24);
  }
  const ValueId shifted = ops.ShrU(word, index * 8);
  return sign ? ops.Make(Opcode::kExtend8, shifted) : ops.And(shifted, 0xff);
}

ValueId HalfOf(PureOps& ops, ValueId word, uint32_t index, bool sign) {
  if (index == 1) {
    return sign ? ops.ShrS(word, 16) : ops.ShrU(word, 16);
  }
  return sign ? ops.Make(Opcode::kExtend16, word) : ops.And(word, 0xffff);
}

ValueId PackBytes(PureOps& ops, const std::array<ValueId, 4>& bytes, bool clean) {
  ValueId word = ops.Shl(bytes[3], 24);
  for (const uint32_t i : {2u, 1u, 0u}) {
    const ValueId byte = clean ? bytes[i] : ops.And(bytes[i], 0xff);
    word = ops.Or(ops.Shl(byte, i * 8), word);
  }
  return word;
}

ValueId PackHalves(PureOps& ops, ValueId low, ValueId high, bool clean) {
  const ValueId below = clean ? low : ops.And(low, 0xffff);
  return ops.Or(below, ops.Shl(high, 16));
}

V128 ExtendHalf(PureOps& ops, ValueId low_word, ValueId high_word, uint32_t bits, bool sign) {
  const std::array words = {low_word, high_word};
  V128 result;
  for (uint32_t i = 0; i < 4; ++i) {
    const ValueId word = words[i / 2];
    if (bits == 8) {
      const uint32_t first = i % 2 * 2;
      result[i] = PackHalves(ops, ByteOf(ops, word, first, sign), ByteOf(ops, word, first + 1, sign), !sign);
    } else if (bits == 16) {
      result[i] = HalfOf(ops, word, i % 2, sign);
    } else if (i % 2 == 0) {
      result[i] = word;
    } else {
      result[i] = sign ? ops.ShrS(word, 31) : ops.Word(0);
    }
  }
  return result;
}

namespace {

using W = wabt::Opcode;

void Extend(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  const size_t first = c.row.high ? 2 : 0;
  c.stack.PushV128(ExtendHalf(c.ops, a[first], a[first + 1], c.row.bits, c.row.sign));
}

// Clamps an i32 lane to the range of a narrower lane.
ValueId Clamp(const SimdCall& c, ValueId lane) {
  PureOps& ops = c.ops;
  const uint32_t bits = c.row.bits;
  const ValueId least = ops.Word(c.row.sign ? ~uint32_t{0} << (bits - 1) : 0);
  const ValueId most = ops.Word((uint32_t{1} << (c.row.sign ? bits - 1 : bits)) - 1);
  const ValueId above = ops.Select(ops.Make(Opcode::kLtS, lane, least), least, lane);
  return ops.Select(ops.Make(Opcode::kGtS, above, most), most, above);
}

void Narrow(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  V128 result;
  for (uint32_t i = 0; i < 4; ++i) {
    const V128& from = i < 2 ? a : b;
    const ValueId low = from[i % 2 * 2], high = from[i % 2 * 2 + 1];
    if (c.row.bits == 16) {
      result[i] = PackHalves(c.ops, Clamp(c, low), Clamp(c, high), !c.row.sign);
    } else {
      const std::array bytes = {Clamp(c, HalfOf(c.ops, low, 0, true)), Clamp(c, HalfOf(c.ops, low, 1, true)),
                                Clamp(c, HalfOf(c.ops, high, 0, true)), Clamp(c, HalfOf(c.ops, high, 1, true))};
      result[i] = PackBytes(c.ops, bytes, !c.row.sign);
    }
  }
  c.stack.PushV128(result);
}

// Returns words of products of two lanes of a word each; of one lane for pairs (extmul to i64x2).
ValueId ProductWord(const SimdCall& c, ValueId a, ValueId b, uint32_t index) {
  PureOps& ops = c.ops;
  const bool sign = c.row.sign;
  if (c.row.bits == 16) {
    return ops.Mul(HalfOf(ops, a, index, sign), HalfOf(ops, b, index, sign));
  }
  const uint32_t first = index * 2;
  const ValueId low = ops.Mul(ByteOf(ops, a, first, sign), ByteOf(ops, b, first, sign));
  const ValueId high = ops.Mul(ByteOf(ops, a, first + 1, sign), ByteOf(ops, b, first + 1, sign));
  return PackHalves(ops, low, high, !sign);
}

void Extmul(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  const size_t first = c.row.high ? 2 : 0;
  V128 result;
  for (uint32_t i = 0; i < 4; ++i) {
    result[i] = ProductWord(c, a[first + i / 2], b[first + i / 2], i % 2);
  }
  c.stack.PushV128(result);
}

void ExtmulPairs(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  const size_t first = c.row.high ? 2 : 0;
  const Opcode extend = c.row.sign ? Opcode::kExtendS : Opcode::kExtendU;
  std::array<ValueId, 2> products;
  for (size_t i = 0; i < 2; ++i) {
    products[i] =
        c.ops.Mul(c.ops.Convert(extend, a[first + i], Type::kI64), c.ops.Convert(extend, b[first + i], Type::kI64));
  }
  c.stack.PushV128(FromPairs(c.ops, products[0], products[1]));
}

// Each half is the sum of its two bytes. Signed bytes are biased by 128, so that no sum is negative before the bias
// is subtracted in the lower 15 bits of each half.
ValueId AddBytePairs(const SimdCall& c, ValueId a) {
  PureOps& ops = c.ops;
  const ValueId biased = c.row.sign ? ops.Xor(a, 0x80808080) : a;
  const ValueId sums = ops.Add(ops.And(biased, 0x00ff00ff), ops.And(ops.ShrU(biased, 8), 0x00ff00ff));
  return c.row.sign ? ops.Xor(ops.Sub(ops.Or(sums, 0x80008000), 0x01000100), 0x80008000) : sums;
}

ValueId AddHalfPairs(const SimdCall& c, ValueId a) {
  return c.ops.Add(HalfOf(c.ops, a, 0, c.row.sign), HalfOf(c.ops, a, 1, c.row.sign));
}

ValueId Dot(const SimdCall& c, ValueId a, ValueId b) {
  PureOps& ops = c.ops;
  return ops.Add(ops.Mul(HalfOf(ops, a, 0, true), HalfOf(ops, b, 0, true)),
                 ops.Mul(HalfOf(ops, a, 1, true), HalfOf(ops, b, 1, true)));
}

constexpr Opcode kNone = Opcode::kConst;
constexpr SimdRow kRows[] = {
    {W::I8X16NarrowI16X8S, Narrow, 8, kNone, true},
    {W::I8X16NarrowI16X8U, Narrow, 8, kNone, false},
    {W::I16X8NarrowI32X4S, Narrow, 16, kNone, true},
    {W::I16X8NarrowI32X4U, Narrow, 16, kNone, false},
    {W::I16X8ExtendLowI8X16S, Extend, 8, kNone, true, false},
    {W::I16X8ExtendHighI8X16S, Extend, 8, kNone, true, true},
    {W::I16X8ExtendLowI8X16U, Extend, 8, kNone, false, false},
    {W::I16X8ExtendHighI8X16U, Extend, 8, kNone, false, true},
    {W::I32X4ExtendLowI16X8S, Extend, 16, kNone, true, false},
    {W::I32X4ExtendHighI16X8S, Extend, 16, kNone, true, true},
    {W::I32X4ExtendLowI16X8U, Extend, 16, kNone, false, false},
    {W::I32X4ExtendHighI16X8U, Extend, 16, kNone, false, true},
    {W::I64X2ExtendLowI32X4S, Extend, 32, kNone, true, false},
    {W::I64X2ExtendHighI32X4S, Extend, 32, kNone, true, true},
    {W::I64X2ExtendLowI32X4U, Extend, 32, kNone, false, false},
    {W::I64X2ExtendHighI32X4U, Extend, 32, kNone, false, true},
    {W::I16X8ExtmulLowI8X16S, Extmul, 8, kNone, true, false},
    {W::I16X8ExtmulHighI8X16S, Extmul, 8, kNone, true, true},
    {W::I16X8ExtmulLowI8X16U, Extmul, 8, kNone, false, false},
    {W::I16X8ExtmulHighI8X16U, Extmul, 8, kNone, false, true},
    {W::I32X4ExtmulLowI16X8S, Extmul, 16, kNone, true, false},
    {W::I32X4ExtmulHighI16X8S, Extmul, 16, kNone, true, true},
    {W::I32X4ExtmulLowI16X8U, Extmul, 16, kNone, false, false},
    {W::I32X4ExtmulHighI16X8U, Extmul, 16, kNone, false, true},
    {W::I64X2ExtmulLowI32X4S, ExtmulPairs, 32, kNone, true, false},
    {W::I64X2ExtmulHighI32X4S, ExtmulPairs, 32, kNone, true, true},
    {W::I64X2ExtmulLowI32X4U, ExtmulPairs, 32, kNone, false, false},
    {W::I64X2ExtmulHighI32X4U, ExtmulPairs, 32, kNone, false, true},
    {W::I16X8ExtaddPairwiseI8X16S, EachWord1<AddBytePairs>, 8, kNone, true},
    {W::I16X8ExtaddPairwiseI8X16U, EachWord1<AddBytePairs>, 8, kNone, false},
    {W::I32X4ExtaddPairwiseI16X8S, EachWord1<AddHalfPairs>, 16, kNone, true},
    {W::I32X4ExtaddPairwiseI16X8U, EachWord1<AddHalfPairs>, 16, kNone, false},
    {W::I32X4DotI16X8S, EachWord2<Dot>, 16, kNone, true},
};

}  // namespace

std::span<const SimdRow> SimdWidenRows() { return kRows; }

}  // namespace hpvm::wasm
