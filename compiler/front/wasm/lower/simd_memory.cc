// SPDX-License-Identifier: Apache-2.0
// Loads and stores. Each is a single access of the width that WebAssembly checks, so it traps exactly where required.
#include <array>

#include "wabt/opcode.h"

#include "compiler/front/wasm/lower/simd_row.h"

namespace hpvm::wasm {
namespace {

using W = wabt::Opcode;

ir::Op Access(const SimdCall& c, Opcode code, Type type, uint32_t bytes) {
  ir::Op op{.code = code,
            .type = type,
            .width = static_cast<uint8_t>(bytes),
            .imm = c.instr.offset,
            .source = c.instr.source};
  return op;
}

// Loads bits / 8 bytes: an i64 for eight bytes, else an i32 whose upper bits are zero.
ValueId LoadLaneBits(const SimdCall& c, uint32_t bits, ValueId address) {
  const Type type = bits == 64 ? Type::kI64 : Type::kI32;
  return c.builder.Append1(Access(c, Opcode::kLoad, type, bits / 8), std::array{address}, type);
}

void Load(SimdCall& c) {
  const ValueId address = c.stack.Pop();
  const std::array words = {Type::kI32, Type::kI32, Type::kI32, Type::kI32};
  const ir::OpId load = c.builder.Append(Access(c, Opcode::kLoad128, Type::kI32, 16), std::array{address}, words);
  const std::vector<ValueId> results = c.builder.Results(load);
  c.stack.PushV128({results[0], results[1], results[2], results[3]});
}

void Store(SimdCall& c) {
  const V128 value = c.stack.PopV128();
  const ValueId address = c.stack.Pop();
  c.builder.Append(Access(c, Opcode::kStore128, Type::kI32, 16),
                   std::array{address, value[0], value[1], value[2], value[3]}, {});
}

void LoadExtend(SimdCall& c) {
  const ValueId lanes = LoadLaneBits(c, 64, c.stack.Pop());
  c.stack.PushV128(ExtendHalf(c.ops, c.ops.Low(lanes), c.ops.High(lanes), c.row.bits, c.row.sign));
}

void LoadSplat(SimdCall& c) {
  const ValueId lane = LoadLaneBits(c, c.row.bits, c.stack.Pop());
  if (c.row.bits == 64) {
    c.stack.PushV128(FromPairs(c.ops, lane, lane));
    return;
  }
  const uint32_t copies = c.row.bits == 8 ? 0x01010101 : c.row.bits == 16 ? 0x00010001 : 1;
  const ValueId word = c.ops.Mul(lane, copies);
  c.stack.PushV128({word, word, word, word});
}

void LoadZero(SimdCall& c) {
  const ValueId lane = LoadLaneBits(c, c.row.bits, c.stack.Pop());
  const ValueId zero = c.ops.Word(0);
  if (c.row.bits == 64) {
    c.stack.PushV128({c.ops.Low(lane), c.ops.High(lane), zero, zero});
  } else {
    c.stack.PushV128({lane, zero, zero, zero});
  }
}

void LoadLane(SimdCall& c) {
  V128 vector = c.stack.PopV128();
  const ValueId lane = LoadLaneBits(c, c.row.bits, c.stack.Pop());
  ReplaceLane(c.ops, vector, c.row.bits, c.instr.lane, lane);
  c.stack.PushV128(vector);
}

void StoreLane(SimdCall& c) {
  const V128 vector = c.stack.PopV128();
  const ValueId address = c.stack.Pop();
  const uint32_t bits = c.row.bits, lane = c.instr.lane;
  // A narrow store writes the lowest bits.
  const ValueId value = bits == 64 ? Pair(c.ops, vector, lane) : c.ops.ShrU(vector[lane * bits / 32], lane * bits % 32);
  c.builder.Append(Access(c, Opcode::kStore, bits == 64 ? Type::kI64 : Type::kI32, bits / 8),
                   std::array{address, value}, {});
}

constexpr Opcode kNone = Opcode::kConst;
constexpr SimdRow kRows[] = {
    {W::V128Load, Load},
    {W::V128Store, Store},
    {W::V128Load8X8S, LoadExtend, 8, kNone, true},
    {W::V128Load8X8U, LoadExtend, 8, kNone, false},
    {W::V128Load16X4S, LoadExtend, 16, kNone, true},
    {W::V128Load16X4U, LoadExtend, 16, kNone, false},
    {W::V128Load32X2S, LoadExtend, 32, kNone, true},
    {W::V128Load32X2U, LoadExtend, 32, kNone, false},
    {W::V128Load8Splat, LoadSplat, 8},
    {W::V128Load16Splat, LoadSplat, 16},
    {W::V128Load32Splat, LoadSplat, 32},
    {W::V128Load64Splat, LoadSplat, 64},
    {W::V128Load32Zero, LoadZero, 32},
    {W::V128Load64Zero, LoadZero, 64},
    {W::V128Load8Lane, LoadLane, 8},
    {W::V128Load16Lane, LoadLane, 16},
    {W::V128Load32Lane, LoadLane, 32},
    {W::V128Load64Lane, LoadLane, 64},
    {W::V128Store8Lane, StoreLane, 8},
    {W::V128Store16Lane, StoreLane, 16},
    {W::V128Store32Lane, StoreLane, 32},
    {W::V128Store64Lane, StoreLane, 64},
};

}  // namespace

std::span<const SimdRow> SimdMemoryRows() { return kRows; }

}  // namespace hpvm::wasm
