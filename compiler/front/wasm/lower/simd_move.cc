// SPDX-License-Identifier: Apache-2.0
// Constants and instructions that move lanes.
#include <array>
#include <vector>

#include "wabt/opcode.h"

#include "compiler/front/wasm/lower/simd_row.h"

namespace hpvm::wasm {
namespace {

using W = wabt::Opcode;

void ConstV128(SimdCall& c) {
  V128 result;
  for (size_t i = 0; i < 4; ++i) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; ++k) {
      bits |= uint32_t{c.instr.bytes[4 * i + k]} << (8 * k);
    }
    result[i] = c.ops.Word(bits);
  }
  c.stack.PushV128(result);
}

// The contribution of one word to another: the number of bytes by which it moves (up when positive), and the bytes of
// the result that it provides.
struct Part {
  ValueId word;
  int32_t up = 0;
  uint32_t mask = 0;
};

ValueId MoveBytes(PureOps& ops, const Part& part) {
  const uint32_t bits = static_cast<uint32_t>(part.up < 0 ? -part.up : part.up) * 8;
  const ValueId moved = part.up < 0 ? ops.ShrU(part.word, bits) : ops.Shl(part.word, bits);
  const uint32_t filled = part.up < 0 ? 0xffffffffu >> bits : 0xffffffffu << bits;
  return filled == part.mask ? moved : ops.And(moved, part.mask);
}

// Returns the word of four bytes taken from eight words; an index of 32 or more gives a zero byte.
ValueId GatherBytes(PureOps& ops, const std::array<ValueId, 8>& from, std::span<const uint8_t> lanes) {
  std::vector<Part> parts;
  for (size_t i = 0; i < 4; ++i) {
    if (lanes[i] >= 32) {
      continue;
    }
    const ValueId word = from[lanes[i] / 4];
    const int32_t up = static_cast<int32_t>(i) - lanes[i] % 4;
    size_t at = 0;
    while (at < parts.size() && (parts[at].word != word || parts[at].up != up)) {
      ++at;
    }
    if (at == parts.size()) {
      parts.push_back({word, up, 0});
    }
    parts[at].mask |= 0xffu << (8 * i);
  }
  ValueId result = ops.Word(0);
  for (const Part& part : parts) {
    result = ops.Or(result, MoveBytes(ops, part));
  }
  return result;
}

V128 Gather(PureOps& ops, const V128& a, const V128& b, const std::array<uint8_t, 16>& lanes) {
  const std::array from = {a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]};
  V128 result;
  for (size_t i = 0; i < 4; ++i) {
    result[i] = GatherBytes(ops, from, std::span(lanes).subspan(4 * i, 4));
  }
  return result;
}

void Shuffle(SimdCall& c) {
  const V128 b = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  c.stack.PushV128(Gather(c.ops, a, b, c.instr.bytes));
}

// Returns the byte at a place that is known only at run time; 0 when the place is 16 or more. The shift takes three
// bits of the place, the selection between the two i64 the fourth.
ValueId PickByte(PureOps& ops, ValueId low, ValueId high, ValueId place) {
  const ValueId half = ops.Select(ops.And(place, 8), high, low);
  const ValueId moved = ops.ShrU(half, ops.Shl(ops.Convert(Opcode::kExtendU, place, Type::kI64), 3));
  const ValueId byte = ops.And(ops.Convert(Opcode::kWrap, moved, Type::kI32), 0xff);
  return ops.Select(ops.Make(Opcode::kLtU, place, 16), byte, ops.Word(0));
}

void Swizzle(SimdCall& c) {
  PureOps& ops = c.ops;
  const V128 places = c.stack.PopV128();
  const V128 a = c.stack.PopV128();
  std::array<uint8_t, 16> known{};
  bool is_known = true;
  for (size_t i = 0; i < 16 && is_known; ++i) {
    const std::optional<uint64_t> bits = ops.BitsOf(places[i / 4]);
    is_known = bits.has_value();
    const uint8_t place = is_known ? static_cast<uint8_t>(*bits >> (i % 4 * 8)) : uint8_t{0};
    known[i] = place < 16 ? place : uint8_t{32};
  }
  if (is_known) {
    c.stack.PushV128(Gather(ops, a, a, known));
    return;
  }
  const ValueId low = Pair(ops, a, 0), high = Pair(ops, a, 1);
  V128 result;
  for (size_t i = 0; i < 4; ++i) {
    std::array<ValueId, 4> bytes;
    for (uint32_t k = 0; k < 4; ++k) {
      bytes[k] = PickByte(ops, low, high, ByteOf(ops, places[i], k, false));
    }
    result[i] = PackBytes(ops, bytes, true);
  }
  c.stack.PushV128(result);
}

void SplatPacked(SimdCall& c) {
  const bool is_byte = c.row.bits == 8;
  const ValueId lane = c.ops.And(c.stack.Pop(), is_byte ? 0xff : 0xffff);
  const ValueId word = c.ops.Mul(lane, is_byte ? 0x01010101 : 0x00010001);
  c.stack.PushV128({word, word, word, word});
}

// Pops an i32, i64, f32 or f64 and returns its bits.
ValueId PopBits(SimdCall& c) {
  const ValueId value = c.stack.Pop();
  return ir::IsInt(c.ops.type_of(value)) ? value : c.ops.AsInteger(value);
}

void SplatWide(SimdCall& c) {
  const ValueId bits = PopBits(c);
  if (c.row.bits == 64) {
    c.stack.PushV128(FromPairs(c.ops, bits, bits));
  } else {
    c.stack.PushV128({bits, bits, bits, bits});
  }
}

void ExtractPacked(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  const uint32_t lanes = 32 / c.row.bits;
  const ValueId word = a[c.instr.lane / lanes];
  const uint32_t index = c.instr.lane % lanes;
  c.stack.Push(c.row.bits == 8 ? ByteOf(c.ops, word, index, c.row.sign) : HalfOf(c.ops, word, index, c.row.sign));
}
void ExtractInteger(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  c.stack.Push(c.row.bits == 32 ? a[c.instr.lane] : Pair(c.ops, a, c.instr.lane));
}
void ExtractFloat(SimdCall& c) {
  const V128 a = c.stack.PopV128();
  c.stack.Push(c.ops.AsFloat(c.row.bits == 32 ? a[c.instr.lane] : Pair(c.ops, a, c.instr.lane)));
}

void Replace(SimdCall& c) {
  const ValueId lane = PopBits(c);
  V128 a = c.stack.PopV128();
  ReplaceLane(c.ops, a, c.row.bits, c.instr.lane, lane);
  c.stack.PushV128(a);
}

constexpr Opcode kNone = Opcode::kConst;
constexpr SimdRow kRows[] = {
    {W::V128Const, ConstV128},
    {W::I8X16Shuffle, Shuffle},
    {W::I8X16Swizzle, Swizzle},
    {W::I8X16Splat, SplatPacked, 8},
    {W::I16X8Splat, SplatPacked, 16},
    {W::I32X4Splat, SplatWide, 32},
    {W::I64X2Splat, SplatWide, 64},
    {W::F32X4Splat, SplatWide, 32},
    {W::F64X2Splat, SplatWide, 64},
    {W::I8X16ExtractLaneS, ExtractPacked, 8, kNone, true},
    {W::I8X16ExtractLaneU, ExtractPacked, 8, kNone, false},
    {W::I8X16ReplaceLane, Replace, 8},
    {W::I16X8ExtractLaneS, ExtractPacked, 16, kNone, true},
    {W::I16X8ExtractLaneU, ExtractPacked, 16, kNone, false},
    {W::I16X8ReplaceLane, Replace, 16},
    {W::I32X4ExtractLane, ExtractInteger, 32},
    {W::I32X4ReplaceLane, Replace, 32},
    {W::I64X2ExtractLane, ExtractInteger, 64},
    {W::I64X2ReplaceLane, Replace, 64},
    {W::F32X4ExtractLane, ExtractFloat, 32},
    {W::F32X4ReplaceLane, Replace, 32},
    {W::F64X2ExtractLane, ExtractFloat, 64},
    {W::F64X2ReplaceLane, Replace, 64},
};

}  // namespace

void ReplaceLane(PureOps& ops, V128& vector, uint32_t bits, uint32_t index, ValueId lane) {
  if (bits == 64) {
    vector[2 * index] = ops.Low(lane);
    vector[2 * index + 1] = ops.High(lane);
  } else if (bits == 32) {
    vector[index] = lane;
  } else {
    const uint32_t ones = (uint32_t{1} << bits) - 1;
    const uint32_t shift = index % (32 / bits) * bits;
    ValueId& word = vector[index / (32 / bits)];
    word = ops.Or(ops.And(word, ~(ones << shift)), ops.Shl(ops.And(lane, ones), shift));
  }
}

std::span<const SimdRow> SimdMoveRows() { return kRows; }

}  // namespace hpvm::wasm
