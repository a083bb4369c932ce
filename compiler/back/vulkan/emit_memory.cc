// SPDX-License-Identifier: Apache-2.0
// Loads and stores where it is known what they reach: a buffer, group memory, or a work item's own.
//
// Buffers are arrays of the widest element that the access's alignment allows; what is not aligned is put together
// from words. Views begin at multiples of 8 bytes (ir::kDataAlignment), or of 16 where the variant says so. A store of
// less than a word, where the device has no such view, clears and sets bits of the word around it atomically, since
// its neighbours belong to others.
#include <algorithm>
#include <bit>

#include "compiler/back/vulkan/emitter.h"
#include "compiler/ir/launch.h"

namespace hpvm::vulkan {

using ir::Opcode;
using ir::TrapCode;
using ir::Type;
using Kind = GpuArgument::Kind;

uint32_t KernelEmitter::AlignmentOf(const ir::Op& op) const {
  const ir::ValueId address = f_.operands_of(op)[0];
  const uint32_t known = address.index < plan_.alignment.size() ? plan_.alignment[address.index] : 0;
  return std::min(known, op.imm == 0 ? 63u : static_cast<uint32_t>(std::countr_zero(op.imm)));
}

SpvId KernelEmitter::Narrow(SpvId address) {
  return module_.is_memory64 ? w.Op(spv::OpUConvert, c.U32(), {address}) : address;
}

SpvId KernelEmitter::Hoisted(const std::string& name, const std::function<SpvId()>& make) {
  if (!hoists_) {
    return make();
  }
  const auto found = hoisted_.find(name);
  if (found != hoisted_.end()) {
    return found->second;
  }
  w.OpenFunction(&prologue_);
  const SpvId value = make();
  w.LeaveFunction();
  return hoisted_[name] = value;
}

// How many offsets an access of `reach` bytes may have: bytes - reach + 1, or none.
SpvId KernelEmitter::RangeCount(uint32_t param, uint64_t reach) {
  return Hoisted("count " + std::to_string(param) + " " + std::to_string(reach), [&] {
    const SpvId bytes = Argument32(Kind::kBufferBytes, param);
    const SpvId least = c.K(static_cast<uint32_t>(reach - 1));
    const SpvId reaches = c.Test(spv::OpUGreaterThan, bytes, least);
    const SpvId count = c.Sub(bytes, least);
    return c.Select(c.U32(), reaches, count, c.K(0));
  });
}

SpvId KernelEmitter::IsOutside(SpvId offset, SpvId count) {
  if (!module_.is_memory64) {
    return c.Test(spv::OpUGreaterThanEqual, offset, count);
  }
  return c.Test(spv::OpUGreaterThanEqual, offset, w.Op(spv::OpUConvert, w.Int(64), {count}));
}

std::optional<Spot> KernelEmitter::FindInParam(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  const uint32_t k = op.space_index;
  const bool writes = (ir::Info(op.code).effects & ir::kWrites) != 0;
  const SpvId offset = Operand(op, 0);
  const auto address = [&] {
    const SpvId base = ParamBase(k);
    return c.AddK(c.Add(base, Narrow(offset)), static_cast<uint32_t>(op.imm));
  };
  if (op.imm > 0xffffffffu - op.width) {
    TrapNow(TrapCode::kOutOfBounds, op, address(), op.width);
    return std::nullopt;
  }
  if (!OmitsCheck(id)) {
    const SpvId count = RangeCount(k, op.imm + op.width);
    TrapIf(IsOutside(offset, count), MissCode(id), op, address, op.width);
  }
  if (writes && !module_.params[k].is_writable) {
    TrapNow(TrapCode::kReadOnlyBuffer, op, address(), op.width);
    return std::nullopt;
  }
  Spot spot;
  spot.param = k;
  const SpvId start = Hoisted("start " + std::to_string(k), [&] { return Argument32(Kind::kBufferStart, k); });
  spot.address = c.AddK(c.Add(start, Narrow(offset)), static_cast<uint32_t>(op.imm));
  spot.alignment = std::min(AlignmentOf(op), options_.needs_alignment ? 4u : 3u);
  return spot;
}

SpvId KernelEmitter::GroupBase() {
  return Hoisted("group base", [&] {
    if (!module_.is_memory64) {
      return Argument32(Kind::kGroupBase, 0);
    }
    return c.Bits(m_.TypeOf(Type::kI64), Argument(Kind::kGroupBase, 0, 8));
  });
}

std::optional<Spot> KernelEmitter::FindInGroup(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  const SpvId value = Operand(op, 0);
  const auto address = [&] { return c.AddK(Narrow(value), static_cast<uint32_t>(op.imm)); };
  const uint64_t end = group_ ? group_->end : 0;
  if (op.imm > end || op.width > end - op.imm) {
    TrapNow(TrapCode::kOutOfBounds, op, address(), op.width);
    return std::nullopt;
  }
  const SpvId base = GroupBase();
  const SpvId offset = w.Op(spv::OpISub, WordsType(), {value, base});
  if (!OmitsCheck(id)) {
    const SpvId count = c.K(static_cast<uint32_t>(end - op.imm - op.width + 1));
    TrapIf(IsOutside(offset, count), MissCode(id), op, address, op.width);
  }
  Use(group_->variable);
  Spot spot;
  spot.words = &*group_;
  spot.address = c.AddK(Narrow(offset), static_cast<uint32_t>(op.imm));
  spot.alignment = std::min(AlignmentOf(op), 4u);
  return spot;
}

SpvId KernelEmitter::RawType(uint32_t width) { return width <= 4 ? c.U32() : w.Vector(c.U32(), width / 4); }

bool KernelEmitter::HasView(const Spot& spot, View view) const {
  if (spot.words != nullptr) {
    return view == View::k32;
  }
  return (view != View::k8 || m_.target.has_8_bit_storage) && (view != View::k16 || m_.target.has_16_bit_storage);
}

SpvId KernelEmitter::Element(const Spot& spot, View view, SpvId index) {
  if (spot.words != nullptr) {
    return w.Op(spv::OpAccessChain, w.Pointer(spot.words->storage, c.U32()), {spot.words->variable, index});
  }
  const SpvId type = view == View::k8      ? w.Int(8)
                     : view == View::k16   ? w.Int(16)
                     : view == View::k32   ? w.Int(32)
                     : view == View::k32x2 ? w.Vector(c.U32(), 2)
                     : view == View::k32x4 ? w.Vector(c.U32(), 4)
                                           : w.Int(64);
  const SpvId variable = BufferView(spot.param, view);
  return w.Op(spv::OpAccessChain, w.Pointer(spv::StorageClassStorageBuffer, type), {variable, w.U32(0), index});
}

SpvId KernelEmitter::LoadElement(const Spot& spot, SpvId type, View view, SpvId index) {
  const SpvId pointer = Element(spot, view, index);
  return spot.is_once || IsVolatile(spot) ? w.Op(spv::OpLoad, type, {pointer, spv::MemoryAccessVolatileMask})
                                          : c.Load(type, pointer);
}

void KernelEmitter::StoreElement(const Spot& spot, View view, SpvId index, SpvId value) {
  const SpvId pointer = Element(spot, view, index);
  if (IsVolatile(spot)) {
    w.Do(spv::OpStore, {pointer, value, spv::MemoryAccessVolatileMask});
  } else {
    c.Store(pointer, value);
  }
}

bool KernelEmitter::IsVolatile(const Spot& spot) const {
  return has_no_fences_ && (spot.words == nullptr || spot.words->storage == spv::StorageClassWorkgroup);
}

SpvId KernelEmitter::LoadWord(const Spot& spot, SpvId index) { return LoadElement(spot, c.U32(), View::k32, index); }

void KernelEmitter::StoreWord(const Spot& spot, SpvId index, SpvId value) {
  StoreElement(spot, View::k32, index, value);
}

// Replaces the bits in `mask`.
void KernelEmitter::StoreBits(const Spot& spot, SpvId index, SpvId mask, SpvId value) {
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

SpvId KernelEmitter::BitsInWord(const Spot& spot, uint32_t mask) { return c.ShlK(c.AndK(spot.address, mask), 3); }

Spot KernelEmitter::At(const Spot& spot, uint32_t bytes) {
  Spot further = spot;
  further.address = c.AddK(spot.address, bytes);
  if (bytes != 0) {
    further.alignment = std::min(spot.alignment, static_cast<uint32_t>(std::countr_zero(bytes)));
  }
  return further;
}

// 1 or 2 bytes, zero-extended.
SpvId KernelEmitter::LoadSmall(const Spot& spot, uint32_t width) {
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

void KernelEmitter::StoreSmall(const Spot& spot, uint32_t width, SpvId value) {
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

// 4 bytes at any address, from the one or two words around them.
SpvId KernelEmitter::LoadUnaligned(const Spot& spot) {
  const SpvId shift = BitsInWord(spot, 3);
  const SpvId low = LoadWord(spot, c.ShrK(spot.address, 2));
  const SpvId high = LoadWord(spot, c.ShrK(c.AddK(spot.address, 3), 2));
  const SpvId rest = c.Sub(c.K(31), shift);
  const SpvId below = c.Shr(low, shift);
  const SpvId above = c.Shl(c.ShlK(high, 1), rest);  // In two steps: nothing is left of it when the shift is 0.
  return c.Or(below, above);
}

void KernelEmitter::StoreUnaligned(const Spot& spot, SpvId value) {
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

SpvId KernelEmitter::LoadRaw(const Spot& spot, uint32_t width) {
  if (width < 4) {
    return LoadSmall(spot, width);
  }
  if (width == 4) {
    return spot.alignment >= 2 ? LoadWord(spot, c.ShrK(spot.address, 2)) : LoadUnaligned(spot);
  }
  if (spot.words == nullptr && ((width == 8 && spot.alignment >= 3) || (width == 16 && spot.alignment >= 4))) {
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

void KernelEmitter::StoreRaw(const Spot& spot, uint32_t width, SpvId raw) {
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
  if (spot.words == nullptr && ((width == 8 && spot.alignment >= 3) || (width == 16 && spot.alignment >= 4))) {
    const View view = width == 8 ? View::k32x2 : View::k32x4;
    return StoreElement(spot, view, c.ShrK(spot.address, width == 8 ? 3 : 4), raw);
  }
  for (uint32_t i = 0; i < width / 4; ++i) {
    const SpvId word = w.Op(spv::OpCompositeExtract, c.U32(), {raw, i});
    StoreRaw(At(spot, 4 * i), 4, word);
  }
}

SpvId KernelEmitter::FromRaw(const ir::Op& op, SpvId raw) {
  const SpvId type = m_.TypeOf(op.type);
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

SpvId KernelEmitter::ToRaw(const ir::Op& op, SpvId value) {
  if (op.type == Type::kI32) {
    return value;
  }
  if (op.width == ir::Bytes(op.type)) {
    return c.Bits(RawType(op.width), value);
  }
  return w.Op(spv::OpUConvert, c.U32(), {value});
}

bool KernelEmitter::EmitMemory(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  switch (op.code) {
    case Opcode::kMemorySize:
      SetResult(op, K(module_.address_type(), module_.memory_bytes / ir::kBaseAlignment));
      return true;
    case Opcode::kMemoryCopy:
    case Opcode::kMemoryFill:
    case Opcode::kMemoryInit:
      return EmitBulk(op);
    case Opcode::kMemoryGrow:
      Refuse("A GPU's work item has no memory that grows.");
      SetResult(op, K(module_.address_type(), ~uint64_t{0}));
      return true;
    default:
      return EmitAccess(id);
  }
}

bool KernelEmitter::EmitAccess(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  const bool is_store = op.code == Opcode::kStore || op.code == Opcode::kStore128;
  SpvId raw = 0;
  if (op.code == Opcode::kStore128) {
    raw =
        w.Op(spv::OpCompositeConstruct, RawType(16), {Operand(op, 1), Operand(op, 2), Operand(op, 3), Operand(op, 4)});
  } else if (is_store) {
    raw = ToRaw(op, Operand(op, 1));
  }
  const gpu::Reach reach = plan_.reach[id.index];
  // Volatile reads pass by a GPU's caches, so that they are spared where robust access is there to catch what an `in`
  // port that shares its bytes with another might become.
  bool is_index = false;
  for (uint32_t i = 0; i < op.result_count; ++i) {
    is_index = is_index || index_loads_[op.first_result.index + i];
  }
  if (reach == gpu::Reach::kParam || reach == gpu::Reach::kGroup) {
    std::optional<Spot> spot = reach == gpu::Reach::kParam ? FindInParam(id) : FindInGroup(id);
    if (!spot) {
      return false;
    }
    spot->is_once = is_index && (reach == gpu::Reach::kGroup || module_.params[op.space_index].is_writable);
    if (is_store) {
      StoreRaw(*spot, op.width, raw);
      return true;
    }
    raw = LoadRaw(*spot, op.width);
  } else {
    const SpvId address = AddressOf(op);
    const Memory memory = MemoryOf(reach);
    const uint32_t alignment = std::min(AlignmentOf(op), 3u);
    if (is_store) {
      Call(w.Void(), SearchStore(memory, op.width, alignment), {address, raw});
      TrapIfFault(op, memory, address);
      return true;
    }
    const bool is_once = is_index && memory == Memory::kFlat;
    raw = Call(RawType(op.width), SearchLoad(memory, op.width, alignment, is_once), {address});
    TrapIfFault(op, memory, address);
  }
  if (op.code == Opcode::kLoad128) {
    for (uint32_t i = 0; i < 4; ++i) {
      values_[op.first_result.index + i] = w.Op(spv::OpCompositeExtract, c.U32(), {raw, i});
    }
  } else {
    SetResult(op, FromRaw(op, raw));
  }
  return true;
}

}  // namespace hpvm::vulkan
