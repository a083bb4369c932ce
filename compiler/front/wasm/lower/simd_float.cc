// SPDX-License-Identifier: Apache-2.0
// f32x4 and f64x2. Chained instructions stay in floats: the words between them cost nothing, because PureOps does not
// take apart a value that it has just joined.
#include "wabt/opcode.h"

#include "compiler/front/wasm/lower/simd_row.h"

namespace hpvm::wasm {
namespace {

using W = wabt::Opcode;

// Both take and return the bits of an f32 or f64.
ValueId Unary(const SimdCall& c, ValueId a) { return c.ops.AsInteger(c.ops.Make(c.row.code, c.ops.AsFloat(a))); }
ValueId Binary(const SimdCall& c, ValueId a, ValueId b) {
  return c.ops.AsInteger(c.ops.Make(c.row.code, c.ops.AsFloat(a), c.ops.AsFloat(b)));
}
ValueId Condition(const SimdCall& c, ValueId a, ValueId b) {
  return c.ops.Make(c.row.code, c.ops.AsFloat(a), c.ops.AsFloat(b));
}

ValueId CompareWords(const SimdCall& c, ValueId a, ValueId b) { return c.ops.Mask(Condition(c, a, b)); }

void ComparePairs(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  const ValueId first = c.ops.Mask(Condition(c, Pair(c.ops, a, 0), Pair(c.ops, b, 0)));
  const ValueId second = c.ops.Mask(Condition(c, Pair(c.ops, a, 1), Pair(c.ops, b, 1)));
  c.stack.PushV128({first, first, second, second});
}

// pmin is b < a ? b : a, pmax is a < b ? b : a. The result has the bits of one operand, also for a NaN.
ValueId PickBit(const SimdCall& c, ValueId a, ValueId b) {
  const bool is_min = c.row.code == Opcode::kFMin;
  const ValueId x = c.ops.AsFloat(is_min ? b : a), y = c.ops.AsFloat(is_min ? a : b);
  return c.ops.Make(Opcode::kFLt, x, y);
}
ValueId PickWord(const SimdCall& c, ValueId a, ValueId b) { return c.ops.Select(PickBit(c, a, b), b, a); }

void PickPairs(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  V128 result;
  for (size_t i = 0; i < 2; ++i) {
    const ValueId condition = PickBit(c, Pair(c.ops, a, i), Pair(c.ops, b, i));
    result[2 * i] = c.ops.Select(condition, b[2 * i], a[2 * i]);
    result[2 * i + 1] = c.ops.Select(condition, b[2 * i + 1], a[2 * i + 1]);
  }
  c.stack.PushV128(result);
}

// Both convert between words and f32.
ValueId TruncWord(const SimdCall& c, ValueId a) { return c.ops.Convert(c.row.code, c.ops.AsFloat(a), Type::kI32); }
ValueId ConvertWord(const SimdCall& c, ValueId a) { return c.ops.AsInteger(c.ops.Convert(c.row.code, a, Type::kF32)); }

// Converts both f64 to the lower two words.
void TruncPairs(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  const ValueId first = c.ops.Convert(c.row.code, c.ops.AsFloat(Pair(c.ops, a, 0)), Type::kI32);
  const ValueId second = c.ops.Convert(c.row.code, c.ops.AsFloat(Pair(c.ops, a, 1)), Type::kI32);
  c.stack.PushV128({first, second, c.ops.Word(0), c.ops.Word(0)});
}
void Demote(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  const ValueId first = c.ops.Convert(Opcode::kDemote, c.ops.AsFloat(Pair(c.ops, a, 0)), Type::kF32);
  const ValueId second = c.ops.Convert(Opcode::kDemote, c.ops.AsFloat(Pair(c.ops, a, 1)), Type::kF32);
  c.stack.PushV128({c.ops.AsInteger(first), c.ops.AsInteger(second), c.ops.Word(0), c.ops.Word(0)});
}

// Converts the lower two words to both f64.
void ConvertLow(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  const ValueId first = c.ops.Convert(c.row.code, a[0], Type::kF64);
  const ValueId second = c.ops.Convert(c.row.code, a[1], Type::kF64);
  c.stack.PushV128(FromPairs(c.ops, c.ops.AsInteger(first), c.ops.AsInteger(second)));
}
void Promote(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  const ValueId first = c.ops.Convert(Opcode::kPromote, c.ops.AsFloat(a[0]), Type::kF64);
  const ValueId second = c.ops.Convert(Opcode::kPromote, c.ops.AsFloat(a[1]), Type::kF64);
  c.stack.PushV128(FromPairs(c.ops, c.ops.AsInteger(first), c.ops.AsInteger(second)));
}

constexpr SimdRow kRows[] = {
    {W::F32X4Eq, EachWord2<CompareWords>, 32, {Opcode::kFEq, Opcode::kFGe}},
    {W::F64X2Eq, ComparePairs, 64, {Opcode::kFEq, Opcode::kFGe}},
    {W::F32X4Ceil, EachWord1<Unary>, 32, {Opcode::kFCeil, Opcode::kFNearest}},
    {W::F64X2Ceil, EachPair1<Unary>, 64, {Opcode::kFCeil, Opcode::kFNearest}},
    {W::F32X4Abs, EachWord1<Unary>, 32, {Opcode::kFAbs, Opcode::kFNeg}},
    {W::F32X4Sqrt, EachWord1<Unary>, 32, Opcode::kFSqrt},
    {W::F32X4Add, EachWord2<Binary>, 32, {Opcode::kFAdd, Opcode::kFMax}},
    {W::F32X4PMin, EachWord2<PickWord>, 32, {Opcode::kFMin, Opcode::kFMax}},
    {W::F64X2Abs, EachPair1<Unary>, 64, {Opcode::kFAbs, Opcode::kFNeg}},
    {W::F64X2Sqrt, EachPair1<Unary>, 64, Opcode::kFSqrt},
    {W::F64X2Add, EachPair2<Binary>, 64, {Opcode::kFAdd, Opcode::kFMax}},
    {W::F64X2PMin, PickPairs, 64, {Opcode::kFMin, Opcode::kFMax}},
    {W::I32X4TruncSatF32X4S, EachWord1<TruncWord>, 32, {Opcode::kTruncSatS, Opcode::kTruncSatU}},
    {W::F32X4ConvertI32X4S, EachWord1<ConvertWord>, 32, {Opcode::kConvertS, Opcode::kConvertU}},
    {W::I32X4TruncSatF64X2SZero, TruncPairs, 32, {Opcode::kTruncSatS, Opcode::kTruncSatU}},
    {W::F64X2ConvertLowI32X4S, ConvertLow, 32, {Opcode::kConvertS, Opcode::kConvertU}},
    {W::F32X4DemoteF64X2Zero, Demote, 32},
    {W::F64X2PromoteLowF32X4, Promote, 32},
};

}  // namespace

std::span<const SimdRow> SimdFloatRows() { return kRows; }

}  // namespace hpvm::wasm
