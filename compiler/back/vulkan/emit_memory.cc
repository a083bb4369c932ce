// SPDX-License-Identifier: Apache-2.0
// Loads and stores whose memory is known: a buffer, group memory, or a work item's private memory.
//
// Buffers are arrays of the widest element that the access's alignment allows; unaligned values are composed of words.
// Views begin at multiples of 8 bytes (ir::kDataAlignment), or of 16 where the variant says so. A store of less than a
// word, where the device has no such view, clears and sets bits of the word around it atomically, because the
// neighbouring bytes belong to other instances.
#include <algorithm>
#include <array>
#include <bit>

#include "compiler/back/vulkan/memory.h"
#include "compiler/ir/launch.h"

namespace hpvm::vulkan {

using Kind = GpuArgument::Kind;

// Returns the number of valid offsets of an access of `reach` bytes: bytes - reach + 1, or 0.
SpvId Search::RangeCount(uint32_t param, uint64_t reach) {
  return functions_.Hoisted("count " + std::to_string(param) + " " + std::to_string(reach), [&] {
    const SpvId bytes = v_.Argument32(Kind::kBufferBytes, param);
    const SpvId least = c.K(static_cast<uint32_t>(reach - 1));
    const SpvId reaches = c.Test(spv::OpUGreaterThan, bytes, least);
    const SpvId count = c.Sub(bytes, least);
    return c.Select(c.U32(), reaches, count, c.K(0));
  });
}

SpvId Search::IsOutside(SpvId offset, SpvId count) {
  if (!v_.module.is_memory64) {
    return c.Test(spv::OpUGreaterThanEqual, offset, count);
  }
  return c.Test(spv::OpUGreaterThanEqual, offset, w.Op(spv::OpUConvert, w.Int(64), {count}));
}

void Search::CheckParam(ir::OpId id, SpvId offset) {
  const ir::Op& op = v_.f.op(id);
  const auto address = [&] {
    return c.AddK(c.Add(v_.ParamBase(op.space_index), v_.Narrow(offset)), static_cast<uint32_t>(op.imm));
  };
  const SpvId count = RangeCount(op.space_index, op.imm + op.width);
  traps_.TrapIf(IsOutside(offset, count), v_.MissCode(id), op, address, op.width);
}

// If one of the members misses, each is checked, in order.
void Search::CheckShared(const pass::SharedCheck& check) {
  const SpvId first = values_.Operand(v_.f.op(check.members[0]), 0);
  SpvId least = 0;
  for (const pass::SharedCheck::Bound& bound : check.bounds) {
    const SpvId count = RangeCount(bound.param, bound.reach);
    least = least == 0 ? count : c.Select(c.U32(), c.Test(spv::OpULessThan, least, count), least, count);
  }
  c.If(IsOutside(c.AddK(first, static_cast<uint32_t>(0 - check.below)), least), [&] {
    for (size_t i = 0; i < check.members.size(); ++i) {
      CheckParam(check.members[i], c.AddK(first, static_cast<uint32_t>(check.from_first[i])));
    }
    return true;
  });
}

std::optional<Spot> Search::FindInParam(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  const uint32_t k = op.space_index;
  const bool writes = (ir::Info(op.code).effects & ir::kWrites) != 0;
  const SpvId offset = values_.Operand(op, 0);
  const auto address = [&] {
    const SpvId base = v_.ParamBase(k);
    return c.AddK(c.Add(base, v_.Narrow(offset)), static_cast<uint32_t>(op.imm));
  };
  if (op.imm > 0xffffffffu - op.width) {
    traps_.TrapNow(TrapCode::kOutOfBounds, op, address(), op.width);
    return std::nullopt;
  }
  if (const int32_t shared = shared_.of[id.index]; shared >= 0) {
    const pass::SharedCheck& check = shared_.checks[static_cast<size_t>(shared)];
    check.members[0] == id ? CheckShared(check) : void();
  } else if (!v_.OmitsCheck(id)) {
    CheckParam(id, offset);
  }
  if (writes && !v_.module.params[k].is_writable) {
    traps_.TrapNow(TrapCode::kReadOnlyBuffer, op, address(), op.width);
    return std::nullopt;
  }
  Spot spot;
  spot.param = k;
  const SpvId start =
      functions_.Hoisted("start " + std::to_string(k), [&] { return v_.Argument32(Kind::kBufferStart, k); });
  spot.address = c.AddK(c.Add(start, v_.Narrow(offset)), static_cast<uint32_t>(op.imm));
  spot.alignment = std::min(v_.AlignmentOf(op), v_.options.needs_alignment ? 4u : 3u);
  return spot;
}

std::optional<Spot> Search::FindInGroup(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  const SpvId value = values_.Operand(op, 0);
  const auto address = [&] { return c.AddK(v_.Narrow(value), static_cast<uint32_t>(op.imm)); };
  const uint64_t end = arrays_.group() != nullptr ? arrays_.group()->end : 0;
  if (op.imm > end || op.width > end - op.imm) {
    traps_.TrapNow(TrapCode::kOutOfBounds, op, address(), op.width);
    return std::nullopt;
  }
  const SpvId base = arrays_.GroupBase();
  const SpvId offset = w.Op(spv::OpISub, v_.WordsType(), {value, base});
  if (!v_.OmitsCheck(id)) {
    const SpvId count = c.K(static_cast<uint32_t>(end - op.imm - op.width + 1));
    traps_.TrapIf(IsOutside(offset, count), v_.MissCode(id), op, address, op.width);
  }
  v_.Use(arrays_.group()->variable);
  Spot spot;
  spot.words = arrays_.group();
  spot.address = c.AddK(v_.Narrow(offset), static_cast<uint32_t>(op.imm));
  spot.alignment = std::min(v_.AlignmentOf(op), 4u);
  return spot;
}

SpvId Access::RawType(uint32_t width) { return width <= 4 ? c.U32() : w.Vector(c.U32(), width / 4); }

bool Access::HasView(const Spot& spot, View view) const {
  if (spot.words != nullptr) {
    return view == View::k32 || (view == View::k32x4 && spot.words->has_vectors);
  }
  return (view != View::k8 || v_.m.target.has_8_bit_storage) && (view != View::k16 || v_.m.target.has_16_bit_storage);
}

SpvId Access::Element(const Spot& spot, View view, SpvId index) {
  if (spot.words != nullptr && view == View::k32x4) {
    return w.Op(spv::OpAccessChain, w.Pointer(spot.words->storage, RawType(16)), {spot.words->variable, index});
  }
  if (spot.words != nullptr) {
    const SpvId word = w.Pointer(spot.words->storage, c.U32());
    return spot.words->has_vectors
               ? w.Op(spv::OpAccessChain, word, {spot.words->variable, c.ShrK(index, 2), c.AndK(index, 3)})
               : w.Op(spv::OpAccessChain, word, {spot.words->variable, index});
  }
  const SpvId type = v_.m.ElementType(view);
  const SpvId variable = v_.BufferView(spot.param, view);
  return w.Op(spv::OpAccessChain, w.Pointer(spv::StorageClassStorageBuffer, type), {variable, w.U32(0), index});
}

SpvId Access::LoadElement(const Spot& spot, SpvId type, View view, SpvId index) {
  const SpvId pointer = Element(spot, view, index);
  return spot.is_once || IsVolatile(spot) ? w.Op(spv::OpLoad, type, {pointer, spv::MemoryAccessVolatileMask})
                                          : c.Load(type, pointer);
}

void Access::StoreElement(const Spot& spot, View view, SpvId index, SpvId value) {
  const SpvId pointer = Element(spot, view, index);
  if (IsVolatile(spot)) {
    w.Do(spv::OpStore, {pointer, value, spv::MemoryAccessVolatileMask});
  } else {
    c.Store(pointer, value);
  }
}

bool Access::IsVolatile(const Spot& spot) const {
  return v_.has_no_fences && (spot.words == nullptr || spot.words->storage == spv::StorageClassWorkgroup);
}

SpvId Access::LoadWord(const Spot& spot, SpvId index) { return LoadElement(spot, c.U32(), View::k32, index); }

void Access::StoreWord(const Spot& spot, SpvId index, SpvId value) { StoreElement(spot, View::k32, index, value); }

// Replaces the bits in `mask`.
void Access::StoreBits(const Spot& spot, SpvId index, SpvId mask, SpvId value) {
  const SpvId pointer = Element(spot, View::k32, index);
  if (spot.words != nullptr && spot.words->storage == spv::StorageClassPrivate) {
    const SpvId others = c.Not(mask);
    const SpvId rest = c.And(c.Load(c.U32(), pointer), others);
    c.Store(pointer, c.Or(rest, value));
    return;
  }
  const SpvId scope = c.K(spot.words != nullptr ? spv::ScopeWorkgroup : spv::ScopeDevice);
  const SpvId relaxed = c.K(spv::MemorySemanticsMaskNone);
  w.Op(spv::OpAtomicAnd, c.U32(), {pointer, scope, relaxed, c.Not(mask)});
  w.Op(spv::OpAtomicOr, c.U32(), {pointer, scope, relaxed, value});
}

SpvId Access::BitsInWord(const Spot& spot, uint32_t mask) { return c.ShlK(c.AndK(spot.address, mask), 3); }

Spot Access::At(const Spot& spot, uint32_t bytes) {
  Spot further = spot;
  further.address = c.AddK(spot.address, bytes);
  if (bytes != 0) {
    further.alignment = std::min(spot.alignment, static_cast<uint32_t>(std::countr_zero(bytes)));
  }
  return further;
}

// Loads 1 or 2 bytes, zero-extended.
SpvId Access::LoadSmall(const Spot& spot, uint32_t width) {
  if (width == 2 && spot.alignment < 1) {
    const SpvId low = LoadSmall(At(spot, 0), 1);
    const SpvId high = LoadSmall(At(spot, 1), 1);
    return c.Or(low, c.ShlK(high, 8));
  }
  const View view = width == 1 ? View::k8 : View::k16;
  if (HasView(spot, view)) {
    const SpvId index = width == 1 ? spot.address : c.ShrK(spot.address, 1);
    const SpvId value = LoadElement(spot, w.Int(8 * width), view, index);
    return w.Op(spv::OpUConvert, c.U32(), {value});
  }
  const SpvId word = LoadWord(spot, c.ShrK(spot.address, 2));
  const SpvId shifted = c.Shr(word, BitsInWord(spot, width == 1 ? 3 : 2));
  return c.AndK(shifted, width == 1 ? 0xff : 0xffff);
}

void Access::StoreSmall(const Spot& spot, uint32_t width, SpvId value) {
  if (width == 2 && spot.alignment < 1) {
    StoreSmall(At(spot, 0), 1, value);
    StoreSmall(At(spot, 1), 1, c.ShrK(value, 8));
    return;
  }
  const View view = width == 1 ? View::k8 : View::k16;
  if (HasView(spot, view)) {
    const SpvId index = width == 1 ? spot.address : c.ShrK(spot.address, 1);
    const SpvId narrow = w.Op(spv::OpUConvert, w.Int(8 * width), {value});
    return StoreElement(spot, view, index, narrow);
  }
  const uint32_t bits = width == 1 ? 0xff : 0xffff;
  const SpvId shift = BitsInWord(spot, width == 1 ? 3 : 2);
  const SpvId mask = c.Shl(c.K(bits), shift);
  const SpvId placed = c.Shl(c.AndK(value, bits), shift);
  StoreBits(spot, c.ShrK(spot.address, 2), mask, placed);
}

// Loads 4 bytes at any address, from the one or two words around them.
SpvId Access::LoadUnaligned(const Spot& spot) {
  const SpvId shift = BitsInWord(spot, 3);
  const SpvId low = LoadWord(spot, c.ShrK(spot.address, 2));
  const SpvId high = LoadWord(spot, c.ShrK(c.AddK(spot.address, 3), 2));
  const SpvId rest = c.Sub(c.K(31), shift);
  const SpvId below = c.Shr(low, shift);
  const SpvId above = c.Shl(c.ShlK(high, 1), rest);  // In two steps, because a shift by 32 is undefined.
  return c.Or(below, above);
}

void Access::StoreUnaligned(const Spot& spot, SpvId value) {
  if (HasView(spot, View::k8)) {
    for (uint32_t i = 0; i < 4; ++i) {
      const SpvId byte = i == 0 ? value : c.ShrK(value, 8 * i);
      StoreSmall(At(spot, i), 1, byte);
    }
    return;
  }
  const SpvId shift = BitsInWord(spot, 3);
  const SpvId rest = c.Sub(c.K(31), shift);
  const SpvId low_mask = c.Shl(c.K(0xffffffffu), shift);
  const SpvId low = c.Shl(value, shift);
  StoreBits(spot, c.ShrK(spot.address, 2), low_mask, low);
  const SpvId high_mask = c.Shr(c.K(0x7fffffffu), rest);
  const SpvId high = c.Shr(c.ShrK(value, 1), rest);
  StoreBits(spot, c.ShrK(c.AddK(spot.address, 3), 2), high_mask, high);
}

// Returns true if 8 or 16 bytes are one element of the bound array.
bool Access::IsWhole(const Spot& spot, uint32_t width) const {
  if (width == 8) {
    return spot.words == nullptr && spot.alignment >= 3;
  }
  return width == 16 && spot.alignment >= 4 && HasView(spot, View::k32x4);
}

SpvId Access::LoadRaw(const Spot& spot, uint32_t width) {
  if (width < 4) {
    return LoadSmall(spot, width);
  }
  if (width == 4) {
    return spot.alignment >= 2 ? LoadWord(spot, c.ShrK(spot.address, 2)) : LoadUnaligned(spot);
  }
  if (IsWhole(spot, width)) {
    const View view = width == 8 ? View::k32x2 : View::k32x4;
    return LoadElement(spot, RawType(width), view, c.ShrK(spot.address, width == 8 ? 3 : 4));
  }
  std::vector<SpvId> parts;
  const uint32_t step = width == 16 && spot.words == nullptr && spot.alignment >= 3 ? 8 : 4;
  for (uint32_t i = 0; i < width; i += step) {
    parts.push_back(LoadRaw(At(spot, i), step));
  }
  return w.Op(spv::OpCompositeConstruct, RawType(width), parts);
}

void Access::StoreRaw(const Spot& spot, uint32_t width, SpvId raw) {
  if (width < 4) {
    return StoreSmall(spot, width, raw);
  }
  if (width == 4) {
    const auto aligned = [&] { StoreWord(spot, c.ShrK(spot.address, 2), raw); };
    if (spot.alignment >= 2) {
      return aligned();
    }
    const SpvId is_aligned = c.Equal(c.AndK(spot.address, 3), c.K(0));
    return c.IfElse(is_aligned, aligned, [&] { StoreUnaligned(spot, raw); });
  }
  if (IsWhole(spot, width)) {
    const View view = width == 8 ? View::k32x2 : View::k32x4;
    return StoreElement(spot, view, c.ShrK(spot.address, width == 8 ? 3 : 4), raw);
  }
  for (uint32_t i = 0; i < width / 4; ++i) {
    const SpvId word = w.Op(spv::OpCompositeExtract, c.U32(), {raw, i});
    StoreRaw(At(spot, 4 * i), 4, word);
  }
}

SpvId MemoryOps::FromRaw(const ir::Op& op, SpvId raw) {
  const SpvId type = v_.m.TypeOf(op.type);
  if (op.width >= 4 && op.width == ir::Bytes(op.type)) {
    return op.type == Type::kI32 ? raw : c.Bits(type, raw);
  }
  if (op.sign && op.width < 4) {
    raw = c.SarK(c.ShlK(raw, 32 - 8 * op.width), 32 - 8 * op.width);
  }
  if (op.type == Type::kI32) {
    return raw;
  }
  return w.Op(op.sign ? spv::OpSConvert : spv::OpUConvert, type, {raw});
}

SpvId MemoryOps::ToRaw(const ir::Op& op, SpvId value) {
  if (op.type == Type::kI32) {
    return value;
  }
  if (op.width == ir::Bytes(op.type)) {
    return c.Bits(access_.RawType(op.width), value);
  }
  return w.Op(spv::OpUConvert, c.U32(), {value});
}

bool MemoryOps::EmitMemory(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  switch (op.code) {
    case Opcode::kMemorySize:
      values_.SetResult(op, v_.K(v_.module.address_type(), v_.module.memory_bytes / ir::kBaseAlignment));
      return true;
    case Opcode::kMemoryCopy:
    case Opcode::kMemoryFill:
    case Opcode::kMemoryInit:
      return EmitBulk(op);
    case Opcode::kMemoryGrow:
      v_.Refuse("A GPU's work item has no memory that grows.");
      values_.SetResult(op, v_.K(v_.module.address_type(), ~uint64_t{0}));
      return true;
    default:
      return EmitAccess(id);
  }
}

// Loads from constants: the value at a known address, or a table lookup that is known to be inside. The safety of
// other memory does not depend on that: a computed offset is also clamped. Returns 0 when neither applies.
SpvId MemoryOps::LoadConstant(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  const gpu::OwnMemory* memory = v_.plan.PartOf(id);
  if (memory == nullptr || memory->is_written || !v_.plan.is_inside[id.index]) {
    return 0;
  }
  const uint64_t size = memory->end - memory->begin;
  if (const std::optional<uint64_t> address = definitions_.ConstantOf(v_.f.operands_of(op)[0])) {
    const uint64_t place = *address + op.imm - memory->begin;
    if (place > size || op.width > size - place) {
      return 0;
    }
    std::array<uint32_t, 4> words{};
    for (uint64_t i = 0; i < op.width && place + i < memory->bytes.size(); ++i) {
      words[i / 4] |= static_cast<uint32_t>(memory->bytes[place + i]) << (8 * (i % 4));
    }
    std::vector<SpvId> parts;
    for (uint32_t i = 0; 4 * i < op.width; ++i) {
      parts.push_back(c.K(words[i]));
    }
    return parts.size() == 1 ? parts[0] : w.Composite(access_.RawType(op.width), parts);
  }
  const WordArray* table = arrays_.TableOf(id);
  if (table == nullptr) {
    return 0;
  }
  v_.Use(table->variable);
  const SpvId place = c.AddK(v_.Narrow(values_.Operand(op, 0)), static_cast<uint32_t>(op.imm - memory->begin));
  const SpvId last = c.K(static_cast<uint32_t>(size - std::min<uint64_t>(op.width, size)));
  Spot spot;
  spot.words = table;
  spot.address = c.Select(c.U32(), c.Below(place, last), place, last);
  spot.alignment = std::min(v_.AlignmentOf(op), 3u);
  return access_.LoadRaw(spot, op.width);
}

bool MemoryOps::EmitAccess(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  const bool is_store = op.code == Opcode::kStore || op.code == Opcode::kStore128;
  SpvId raw = 0;
  if (op.code == Opcode::kStore128) {
    raw = w.Op(spv::OpCompositeConstruct, access_.RawType(16),
               {values_.Operand(op, 1), values_.Operand(op, 2), values_.Operand(op, 3), values_.Operand(op, 4)});
  } else if (is_store) {
    raw = ToRaw(op, values_.Operand(op, 1));
  }
  const gpu::Reach reach = v_.plan.reach[id.index];
  // Volatile reads bypass a GPU's caches. They are omitted for `in` ports, which may share bytes with another port:
  // there robust access catches an index that changes.
  bool is_index = false;
  for (uint32_t i = 0; i < op.result_count; ++i) {
    is_index = is_index || index_loads_[op.first_result.index + i];
  }
  if (reach == gpu::Reach::kParam || reach == gpu::Reach::kGroup) {
    std::optional<Spot> spot = reach == gpu::Reach::kParam ? search_.FindInParam(id) : search_.FindInGroup(id);
    if (!spot) {
      return false;
    }
    spot->is_once = is_index && (reach == gpu::Reach::kGroup || v_.module.params[op.space_index].is_writable);
    if (is_store) {
      access_.StoreRaw(*spot, op.width, raw);
      return true;
    }
    raw = access_.LoadRaw(*spot, op.width);
  } else if (const SpvId constant = is_store ? 0 : LoadConstant(id); constant != 0) {
    raw = constant;
  } else {
    const SpvId address = search_.AddressOf(op);
    const Memory memory = search_.MemoryOf(reach);
    const uint32_t alignment = std::min(v_.AlignmentOf(op), 3u);
    if (is_store) {
      functions_.Call(w.Void(), search_.SearchStore(memory, op.width, alignment), {address, raw});
      search_.TrapIfFault(op, memory, address);
      return true;
    }
    const bool is_once = is_index && memory == Memory::kFlat;
    raw =
        functions_.Call(access_.RawType(op.width), search_.SearchLoad(memory, op.width, alignment, is_once), {address});
    search_.TrapIfFault(op, memory, address);
  }
  if (op.code == Opcode::kLoad128) {
    for (uint32_t i = 0; i < 4; ++i) {
      values_.Set(ir::ValueId(op.first_result.index + i), w.Op(spv::OpCompositeExtract, c.U32(), {raw, i}));
    }
  } else {
    values_.SetResult(op, FromRaw(op, raw));
  }
  return true;
}

}  // namespace hpvm::vulkan
