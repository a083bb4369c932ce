// SPDX-License-Identifier: Apache-2.0
// The tables of v128 instruction families: each family's file has one row per instruction.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_ROW_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_ROW_H_

#include <cstdint>
#include <span>

#include "compiler/front/wasm/lower/operand_stack.h"
#include "compiler/front/wasm/lower/simd.h"
#include "compiler/front/wasm/lower/simd_ops.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

struct SimdCall;

// The IR operation of an instruction, or the operations from `first` to `last` of it and the instructions after it.
struct Codes {
  constexpr Codes(ir::Opcode only) : first(only), last(only) {}
  constexpr Codes(ir::Opcode from, ir::Opcode to) : first(from), last(to) {}
  constexpr operator ir::Opcode() const { return first; }
  ir::Opcode first, last;
};

struct SimdRow {
  uint32_t from = 0;  // A wabt::Opcode::Enum.
  void (*lower)(SimdCall&) = nullptr;
  uint8_t bits = 0;                 // Width of a lane; of the narrower lanes where there are two kinds.
  Codes code = ir::Opcode::kConst;  // The operation on a lane, where it is a single one.
  bool sign = false;
  bool high = false;  // Takes the upper half of the lanes.
};

// The instruction that is being lowered, with its context.
struct SimdCall {
  const SimdRow& row;
  const SimdInstr& instr;
  PureOps& ops;
  ir::Builder& builder;
  OperandStack& stack;
};

// simd_move.cc: v128.const, shuffles, splat, extract and replace.
std::span<const SimdRow> SimdMoveRows();
// simd_memory.cc.
std::span<const SimdRow> SimdMemoryRows();
// simd_bits.cc: v128.and and similar, and any_true, all_true, bitmask of every shape.
std::span<const SimdRow> SimdBitsRows();
// simd_packed.cc: i8x16 and i16x8, which compute the lanes of a word together.
std::span<const SimdRow> SimdPackedRows();
// simd_widen.cc: instructions that change the width of integer lanes, and products of i16x8.
std::span<const SimdRow> SimdWidenRows();
// simd_wide.cc: i32x4 and i64x2.
std::span<const SimdRow> SimdWideRows();
// simd_float.cc: f32x4, f64x2 and their conversions.
std::span<const SimdRow> SimdFloatRows();

// These templates handle instructions that treat all words, or all pairs of words, alike.
template <ir::ValueId (*kWord)(const SimdCall&, ir::ValueId)>
void EachWord1(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  c.stack.PushV128({kWord(c, a[0]), kWord(c, a[1]), kWord(c, a[2]), kWord(c, a[3])});
}
template <ir::ValueId (*kWord)(const SimdCall&, ir::ValueId, ir::ValueId)>
void EachWord2(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  c.stack.PushV128({kWord(c, a[0], b[0]), kWord(c, a[1], b[1]), kWord(c, a[2], b[2]), kWord(c, a[3], b[3])});
}
// Pair returns the i64 of words 2 * lane and 2 * lane + 1; FromPairs returns the vector of two i64.
inline ir::ValueId Pair(PureOps& ops, const V128& v, size_t lane) { return ops.Join(v[2 * lane], v[2 * lane + 1]); }
inline V128 FromPairs(PureOps& ops, ir::ValueId a, ir::ValueId b) {
  return {ops.Low(a), ops.High(a), ops.Low(b), ops.High(b)};
}
template <ir::ValueId (*kPair)(const SimdCall&, ir::ValueId)>
void EachPair1(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  c.stack.PushV128(FromPairs(c.ops, kPair(c, Pair(c.ops, a, 0)), kPair(c, Pair(c.ops, a, 1))));
}
template <ir::ValueId (*kPair)(const SimdCall&, ir::ValueId, ir::ValueId)>
void EachPair2(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  c.stack.PushV128(
      FromPairs(c.ops, kPair(c, Pair(c.ops, a, 0), Pair(c.ops, b, 0)), kPair(c, Pair(c.ops, a, 1), Pair(c.ops, b, 1))));
}

// Both return one lane of a word, extended to a word.
ir::ValueId ByteOf(PureOps& ops, ir::ValueId word, uint32_t index, bool sign);
ir::ValueId HalfOf(PureOps& ops, ir::ValueId word, uint32_t index, bool sign);
// Both return a word of lanes. Operands' bits above the lane are ignored, or are zero when `clean`.
ir::ValueId PackBytes(PureOps& ops, const std::array<ir::ValueId, 4>& bytes, bool clean);
ir::ValueId PackHalves(PureOps& ops, ir::ValueId low, ir::ValueId high, bool clean);
// Returns the lower or upper half of the lanes, each extended to twice its width, 2 * bits.
V128 ExtendHalf(PureOps& ops, ir::ValueId low_word, ir::ValueId high_word, uint32_t bits, bool sign);

// `lane` holds the bits in an i64, or in an i32 whose upper bits are ignored.
void ReplaceLane(PureOps& ops, V128& vector, uint32_t bits, uint32_t index, ir::ValueId lane);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_SIMD_ROW_H_
