// SPDX-License-Identifier: Apache-2.0
// i32x4 and i64x2: each lane is one value.
#include "wabt/opcode.h"

#include "compiler/front/wasm/lower/simd_row.h"

namespace hpvm::wasm {
namespace {

using W = wabt::Opcode;

// Operate on words or on i64.
ValueId Plain(const SimdCall& c, ValueId a, ValueId b) { return c.ops.Make(c.row.code, a, b); }
ValueId Neg(const SimdCall& c, ValueId a) { return c.ops.Sub(c.ops.Const(c.ops.type_of(a), 0), a); }
ValueId Abs(const SimdCall& c, ValueId a) {
  const ValueId negative = c.ops.ShrS(a, c.row.bits - 1);
  return c.ops.Sub(c.ops.Xor(a, negative), negative);
}

ValueId CompareWords(const SimdCall& c, ValueId a, ValueId b) { return c.ops.Mask(c.ops.Make(c.row.code, a, b)); }
// A maximum has the comparison "greater".
ValueId Extreme(const SimdCall& c, ValueId a, ValueId b) { return c.ops.Select(c.ops.Make(c.row.code, a, b), a, b); }

void ComparePairs(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  const ValueId first = c.ops.Mask(c.ops.Make(c.row.code, Pair(c.ops, a, 0), Pair(c.ops, b, 0)));
  const ValueId second = c.ops.Mask(c.ops.Make(c.row.code, Pair(c.ops, a, 1), Pair(c.ops, b, 1)));
  c.stack.PushV128({first, first, second, second});
}

// The IR takes counts modulo the width, as WebAssembly does.
void ShiftWords(SimdCall& c) {
  const ValueId count = c.stack.Pop();
  const V128 a = c.stack.PopV128();
  V128 result;
  for (size_t i = 0; i < 4; ++i) {
    result[i] = c.ops.Make(c.row.code, a[i], count);
  }
  c.stack.PushV128(result);
}

void ShiftPairs(SimdCall& c) {
  const ValueId count = c.ops.Convert(Opcode::kExtendU, c.stack.Pop(), Type::kI64);
  const V128 a = c.stack.PopV128();
  const ValueId first = c.ops.Make(c.row.code, Pair(c.ops, a, 0), count);
  const ValueId second = c.ops.Make(c.row.code, Pair(c.ops, a, 1), count);
  c.stack.PushV128(FromPairs(c.ops, first, second));
}

constexpr SimdRow kRows[] = {
    {W::I32X4Eq, EachWord2<CompareWords>, 32, {Opcode::kEq, Opcode::kGeU}},
    {W::I32X4Abs, EachWord1<Abs>, 32},
    {W::I32X4Neg, EachWord1<Neg>, 32},
    {W::I32X4Shl, ShiftWords, 32, {Opcode::kShl, Opcode::kShrU}},
    {W::I32X4Add, EachWord2<Plain>, 32, {Opcode::kAdd, Opcode::kMul}},
    {W::I32X4MinS, EachWord2<Extreme>, 32, {Opcode::kLtS, Opcode::kGtU}},
    {W::I64X2Eq, ComparePairs, 64, {Opcode::kEq, Opcode::kLtS}},
    {W::I64X2GtS, ComparePairs, 64, Opcode::kGtS},
    {W::I64X2LeS, ComparePairs, 64, Opcode::kLeS},
    {W::I64X2GeS, ComparePairs, 64, Opcode::kGeS},
    {W::I64X2Abs, EachPair1<Abs>, 64},
    {W::I64X2Neg, EachPair1<Neg>, 64},
    {W::I64X2Shl, ShiftPairs, 64, {Opcode::kShl, Opcode::kShrU}},
    {W::I64X2Add, EachPair2<Plain>, 64, {Opcode::kAdd, Opcode::kMul}},
};

}  // namespace

std::span<const SimdRow> SimdWideRows() { return kRows; }

}  // namespace hpvm::wasm
