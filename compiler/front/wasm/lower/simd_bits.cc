// SPDX-License-Identifier: Apache-2.0
// v128 instructions on all 128 bits, and instructions that reduce all lanes to an i32.
#include "wabt/opcode.h"

#include "compiler/front/wasm/lower/simd_row.h"

namespace hpvm::wasm {
namespace {

using W = wabt::Opcode;

ValueId Not(const SimdCall& c, ValueId a) { return c.ops.Not(a); }
ValueId Plain(const SimdCall& c, ValueId a, ValueId b) { return c.ops.Make(c.row.code, a, b); }
ValueId AndNot(const SimdCall& c, ValueId a, ValueId b) { return c.ops.And(a, c.ops.Not(b)); }

void Bitselect(SimdCall& c) {
  const V128 mask = c.stack.PopV128();
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  V128 result;
  for (size_t i = 0; i < 4; ++i) {
    if (const std::optional<ValueId> condition = c.ops.ConditionOf(mask[i])) {
      result[i] = c.ops.Select(*condition, a[i], b[i]);
    } else {
      result[i] = c.ops.Xor(b[i], c.ops.And(c.ops.Xor(a[i], b[i]), mask[i]));
    }
  }
  c.stack.PushV128(result);
}

ValueId AllOf(PureOps& ops, Opcode code, const V128& v) {
  return ops.Make(code, ops.Make(code, v[0], v[1]), ops.Make(code, v[2], v[3]));
}

void AnyTrue(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  c.stack.Push(c.ops.Make(Opcode::kNe, AllOf(c.ops, Opcode::kOr, a), 0));
}

// The top bit of a lane stays set when the lane is not zero.
void AllTruePacked(SimdCall& c) {
  PureOps& ops = c.ops;
  const uint32_t tops = c.row.bits == 8 ? 0x80808080 : 0x80008000;
  V128 a = c.stack.PopV128();
  for (ValueId& word : a) {
    word = ops.Or(ops.Add(ops.And(word, ~tops), ~tops), word);
  }
  c.stack.Push(ops.Make(Opcode::kEq, ops.And(AllOf(ops, Opcode::kAnd, a), tops), tops));
}
void AllTrueWords(SimdCall& c) {
  V128 a = c.stack.PopV128();
  for (ValueId& word : a) {
    word = c.ops.Make(Opcode::kNe, word, 0);
  }
  c.stack.Push(AllOf(c.ops, Opcode::kAnd, a));
}
void AllTruePairs(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  const ValueId first = c.ops.Make(Opcode::kNe, c.ops.Or(a[0], a[1]), 0);
  c.stack.Push(c.ops.And(first, c.ops.Make(Opcode::kNe, c.ops.Or(a[2], a[3]), 0)));
}

// Collects the top bits of a word's lanes in the lowest bits.
ValueId TopsOf(const SimdCall& c, ValueId word) {
  PureOps& ops = c.ops;
  if (c.row.bits == 8) {  // The product moves the bit of byte i to bit 28 + i; no two terms meet.
    return ops.ShrU(ops.Mul(ops.And(ops.ShrU(word, 7), 0x01010101), 0x10204080), 28);
  }
  if (c.row.bits == 16) {
    const ValueId low = ops.ShrU(word, 15);
    return ops.Or(ops.And(low, 1), ops.And(ops.ShrU(word, 30), 2));
  }
  return ops.ShrU(word, 31);
}

void Bitmask(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  const uint32_t lanes = c.row.bits < 32 ? 32 / c.row.bits : 1;
  ValueId mask = c.ops.Word(0);
  for (uint32_t i = 0; i < 4; ++i) {
    mask = c.ops.Or(mask, c.ops.Shl(TopsOf(c, a[i]), i * lanes));
  }
  c.stack.Push(mask);
}
void BitmaskPairs(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  c.stack.Push(c.ops.Or(c.ops.ShrU(a[1], 31), c.ops.Shl(c.ops.ShrU(a[3], 31), 1)));
}

constexpr SimdRow kRows[] = {
    {W::V128Not, EachWord1<Not>},        {W::V128And, EachWord2<Plain>, 0, Opcode::kAnd},
    {W::V128Andnot, EachWord2<AndNot>},  {W::V128Or, EachWord2<Plain>, 0, {Opcode::kOr, Opcode::kXor}},
    {W::V128BitSelect, Bitselect},       {W::V128AnyTrue, AnyTrue},
    {W::I8X16AllTrue, AllTruePacked, 8}, {W::I16X8AllTrue, AllTruePacked, 16},
    {W::I32X4AllTrue, AllTrueWords, 32}, {W::I64X2AllTrue, AllTruePairs, 64},
    {W::I8X16Bitmask, Bitmask, 8},       {W::I16X8Bitmask, Bitmask, 16},
    {W::I32X4Bitmask, Bitmask, 32},      {W::I64X2Bitmask, BitmaskPairs, 64},
};

}  // namespace

std::span<const SimdRow> SimdBitsRows() { return kRows; }

}  // namespace hpvm::wasm
