// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>

#include "tests/spmd/generator.h"

namespace hpvm::spmd {
namespace {

constexpr Type kI32 = Type::kI32;

}  // namespace

// Element times width as an address or an offset, written in one of the ways that compilers use.
ValueId Generator::AddressOf(ValueId base, ValueId element, uint32_t width, bool is_param) {
  const Type type = kernel_.module.address_type();
  ValueId offset = element;
  if (type == Type::kI64) {
    const Opcode extend = random_.Percent(50) ? Opcode::kExtendU : Opcode::kExtendS;
    offset = Convert(extend, kI32, element, type);
  }
  if (width > 1) {
    const bool is_shift = random_.Percent(70);
    const ValueId factor = Int(type, is_shift ? static_cast<uint64_t>(std::countr_zero(width)) : width);
    offset = Binary(is_shift ? Opcode::kShl : Opcode::kMul, type, offset, factor);
  }
  if (is_param) {
    return offset;
  }
  return random_.Percent(70) ? Binary(Opcode::kAdd, type, base, offset) : Binary(Opcode::kAdd, type, offset, base);
}

Op Generator::Access(Opcode code, Type type, uint32_t buffer, uint32_t width, ValueId element, ValueId* address) {
  Op op{.code = code};
  op.type = type;
  op.width = static_cast<uint8_t>(width);
  const bool is_param = body_->helper == nullptr && !(traits_.has_flat && random_.Percent(80));
  if (is_param) {
    op.space = ir::Space::kParam;
    op.space_index = buffers_[buffer].param;
  }
  *address = AddressOf(body_->addresses[buffer], element, width, is_param);
  return op;
}

std::optional<uint32_t> Generator::PickBuffer(BufferInfo::Role role) {
  std::vector<uint32_t> fitting;
  for (uint32_t i = 0; i < buffers_.size(); ++i) {
    const bool is_seen = body_ == nullptr || body_->addresses[i].valid();
    if (buffers_[i].role == role && is_seen) {
      fitting.push_back(i);
    }
  }
  return fitting.empty() ? std::nullopt : std::optional(random_.Pick(fitting));
}

// An element computed from sums of 64-bit powers, shifted left and right: with bounds about 2^100, beyond what proofs
// of bounds handle. It may lie outside if `may_miss`.
ValueId Generator::PowerElement(uint64_t count, bool may_miss) {
  constexpr Type kI64 = Type::kI64;
  ValueId sum;
  for (int term = 0; term < 2; ++term) {
    const ValueId narrow = Binary(Opcode::kOr, kI32, Masked(Value(kI32, 1), 0xffff), Int(kI32, 0x8000));
    const ValueId base = Convert(Opcode::kExtendU, kI32, narrow, kI64);
    ValueId power = base;
    for (int degree = 1; degree < 4; ++degree) {
      power = Binary(Opcode::kMul, kI64, power, base);
    }
    sum = term == 0 ? power : Binary(random_.Percent(80) ? Opcode::kAdd : Opcode::kSub, kI64, sum, power);
  }
  const ValueId shifted = Binary(Opcode::kShl, kI64, sum, Int(kI64, random_.Between(36, 41)));
  const auto index_bits = static_cast<uint32_t>(std::bit_width(count) - 1) + (may_miss ? 1 : 0);
  const ValueId down = Binary(Opcode::kShrU, kI64, shifted, Int(kI64, std::min(64 - index_bits, 63u)));
  return Convert(Opcode::kWrap, kI64, down, kI32);
}

// An element of an input buffer of `count` elements, of which `imm_elements` are left to the immediate offset.
ValueId Generator::InputElement(uint64_t count, uint32_t* imm_elements) {
  // Lists of known differences name seeds below 64, whose kernels must not change.
  if (kernel_.seed >= 64 && kernel_.seed % 4 == 0 && count >= 2 && random_.Percent(15)) {
    return PowerElement(count, random_.Percent(traits_.risk));
  }
  const auto instances = static_cast<uint32_t>(kernel_.instances());
  const auto most = static_cast<uint32_t>(std::bit_floor(count) - 1);
  const uint32_t kind = body_->helper != nullptr ? random_.Between(5, 8) : random_.Below(10);
  if (random_.Percent(traits_.risk)) {
    return random_.Percent(50) ? Pick(kI32) : Value(kI32, 2);
  }
  if (kind <= 3 && count >= instances) {
    // Consecutive, shifted by the spare elements, or with a stride.
    const uint32_t stride =
        random_.Percent(70) ? 1 : static_cast<uint32_t>(random_.Between(1, static_cast<uint32_t>(count / instances)));
    const uint64_t spare = count - 1 - uint64_t{instances - 1} * stride;
    const auto shift = random_.Percent(30)   ? 0
                       : random_.Percent(40) ? static_cast<uint32_t>(spare)
                                             : random_.Below(static_cast<uint32_t>(std::min<uint64_t>(spare, 40)) + 1);
    const ValueId strided = stride == 1 ? linear_ : Binary(Opcode::kMul, kI32, linear_, Int(kI32, stride));
    if (random_.Percent(50)) {
      *imm_elements = shift;
      return strided;
    }
    return shift == 0 ? strided : Binary(Opcode::kAdd, kI32, strided, Int(kI32, shift));
  }
  if (kind == 4 && count >= instances) {
    return Binary(Opcode::kSub, kI32, Int(kI32, static_cast<uint32_t>(count - 1)), linear_);
  }
  if (kind == 5) {
    return Int(kI32, random_.Below(static_cast<uint32_t>(count)));
  }
  if (kind == 6) {
    return Masked(PickUniform(kI32), most);
  }
  if (kind == 7) {
    return Binary(Opcode::kRemU, kI32, Pick(kI32), Int(kI32, count));
  }
  return Masked(Value(kI32, 1), most);
}

void Generator::LoadInput() {
  const std::optional<uint32_t> picked = PickBuffer(BufferInfo::Role::kInput);
  if (!picked) {
    return;
  }
  const BufferInfo& buffer = buffers_[*picked];
  const uint64_t bytes = buffer.count * buffer.width;
  if (random_.Percent(5) && bytes >= 16) {
    uint32_t imm = 0;
    const ValueId element = InputElement(bytes / 16, &imm);
    ValueId address;
    Op op = Access(Opcode::kLoad128, kI32, *picked, 16, element, &address);
    op.imm = uint64_t{imm} * 16;
    const OpId made = Emit(op, std::array{address}, std::array{kI32, kI32, kI32, kI32});
    for (ValueId value : b().Results(made)) {
      Keep(value, kI32);
    }
    return;
  }
  static constexpr uint32_t kWidths[] = {4, 4, 4, 8, 1, 2};
  const uint32_t width = std::min(random_.Percent(60) ? buffer.width : kWidths[random_.Below(6)], 8u);
  Type type = kI32;
  if (width == 8) {
    type = random_.Percent(50) ? Type::kF64 : Type::kI64;
  } else if (width == 4) {
    type = random_.Percent(45) ? kI32 : random_.Percent(85) ? Type::kF32 : Type::kI64;
  } else if (random_.Percent(25)) {
    type = Type::kI64;
  }
  uint32_t imm = 0;
  // An unaligned access leaves the last element out.
  const bool is_crooked = width > 1 && bytes / width > 1 && random_.Percent(4);
  const ValueId element = InputElement(bytes / width - (is_crooked ? 1 : 0), &imm);
  ValueId address;
  Op op = Access(Opcode::kLoad, type, *picked, width, element, &address);
  op.imm = uint64_t{imm} * width + (is_crooked ? 1 : 0);
  op.sign = ir::IsInt(type) && width < ir::Bytes(type) && random_.Percent(50);
  Keep(Emit1(op, {address}, type), type);
}

void Generator::LoadTable() {
  if (kernel_.module.data.empty()) {
    return;
  }
  const Type address_type = kernel_.module.address_type();
  const ValueId which = Masked(Pick(kI32), 63);
  ValueId offset = Binary(Opcode::kShl, kI32, which, Int(kI32, 2));
  if (address_type == Type::kI64) {
    offset = Convert(Opcode::kExtendU, kI32, offset, address_type);
  }
  Op op{.code = Opcode::kLoad};
  op.type = random_.Percent(60) ? kI32 : Type::kF32;
  op.width = 4;
  op.space = random_.Percent(50) ? ir::Space::kModule : ir::Space::kFlat;
  op.imm = 1024;
  Keep(Emit1(op, {offset}, op.type), op.type);
  if (random_.Percent(30)) {
    Op get{.code = Opcode::kGlobalGet};
    get.type = kI32;
    get.imm = random_.Below(2);
    Keep(Emit1(get, {}, kI32), kI32, /*is_uniform=*/true);
  }
}

// Forces the kernel to run one instance at a time: stores to instance-private memory.
void Generator::StoreModule() {
  Op op{.code = Opcode::kStore};
  op.type = kI32;
  op.width = 4;
  op.space = ir::Space::kModule;
  const Type type = kernel_.module.address_type();
  const ValueId value = Value(kI32, 1);
  Emit(op, std::array{Int(type, 4096 + random_.Below(8) * 4), value}, {});
}

ValueId Generator::OwnElement(const BufferInfo& buffer) {
  if (buffer.elements == 1) {
    return buffer.index;
  }
  ValueId which = Int(kI32, random_.Below(buffer.elements));
  if (random_.Percent(40)) {
    const ValueId any = random_.Percent(30) ? PickUniform(kI32) : Pick(kI32);
    which = Binary(Opcode::kRemU, kI32, any, Int(kI32, buffer.elements));
  }
  if (buffer.stride != 1) {
    which = Binary(Opcode::kMul, kI32, which, Int(kI32, buffer.stride));
  }
  return Binary(Opcode::kAdd, kI32, buffer.index, which);
}

// Writes a whole cell at once: a fill, or a copy from an input. Returns false when the cell or the place does not
// fit.
bool Generator::StoreCell(uint32_t own) {
  const BufferInfo& buffer = buffers_[own];
  const uint64_t bytes = uint64_t{buffer.width} * buffer.elements;
  if (body_->helper != nullptr || buffer.stride != 1 || buffer.float_bytes != 0 || !std::has_single_bit(bytes)) {
    return false;
  }
  const std::optional<uint32_t> input =
      random_.Percent(50) ? PickBuffer(BufferInfo::Role::kInput) : std::optional<uint32_t>();
  const uint64_t pieces = input ? buffers_[*input].count * buffers_[*input].width / bytes : 0;
  ValueId from;
  if (pieces > 0) {
    uint32_t imm = 0;
    const ValueId element = InputElement(pieces, &imm);
    const ValueId place = Binary(Opcode::kAdd, kI32, element, Int(kI32, imm));
    from = AddressOf(body_->addresses[*input], place, static_cast<uint32_t>(bytes), /*is_param=*/false);
  } else {
    from = Value(kI32, 1);
  }
  const ValueId to = AddressOf(body_->addresses[own], buffer.index, buffer.width, /*is_param=*/false);
  const Op op{.code = pieces > 0 ? Opcode::kMemoryCopy : Opcode::kMemoryFill};
  Emit(op, std::array{to, from, Int(kernel_.module.address_type(), bytes)}, {});
  return true;
}

void Generator::StoreOwn() {
  const std::optional<uint32_t> picked = PickBuffer(BufferInfo::Role::kOwn);
  if (!picked) {
    return;
  }
  const BufferInfo& buffer = buffers_[*picked];
  // Lists of known differences name seeds below 64, whose kernels must not change.
  if (kernel_.seed >= 64 && random_.Percent(6) && StoreCell(*picked)) {
    return;
  }
  const bool is_quad = buffer.elements == 4 && buffer.stride == 1 && buffer.width == 4 && buffer.float_bytes == 0;
  if (kernel_.seed >= 64 && is_quad && random_.Percent(40)) {
    std::array<ValueId, 5> operands;
    for (size_t i = 1; i < operands.size(); ++i) {
      operands[i] = Value(kI32, 1);
    }
    Op op = Access(Opcode::kStore128, kI32, *picked, 4, buffer.index, operands.data());
    op.width = 16;
    Emit(op, operands, {});
    return;
  }
  Type type = kI32;
  if (buffer.float_bytes != 0) {
    type = buffer.float_bytes == 4 ? Type::kF32 : Type::kF64;
  } else if (buffer.width == 8) {
    type = random_.Percent(75) ? Type::kI64 : Type::kF64;
  } else {
    type = random_.Percent(70) ? kI32 : buffer.width == 4 && random_.Percent(60) ? Type::kF32 : Type::kI64;
  }
  ValueId stored = Value(type, random_.Between(0, 2));
  if (!ir::IsInt(type) && buffer.float_bytes == 0) {
    stored = NoNan(type, stored);
  }
  const ValueId element = OwnElement(buffer);
  ValueId address;
  Op op = Access(Opcode::kStore, type, *picked, buffer.width, element, &address);
  Emit(op, std::array{address, stored}, {});
}

void Generator::LoadOwn() {
  const std::optional<uint32_t> picked = PickBuffer(BufferInfo::Role::kOwn);
  if (!picked) {
    return;
  }
  const BufferInfo& buffer = buffers_[*picked];
  Type type = buffer.width == 8 ? Type::kI64 : kI32;
  if (buffer.float_bytes != 0) {
    type = buffer.float_bytes == 4 ? Type::kF32 : Type::kF64;
  }
  const ValueId element = OwnElement(buffer);
  ValueId address;
  Op op = Access(Opcode::kLoad, type, *picked, buffer.width, element, &address);
  op.sign = ir::IsInt(type) && buffer.width < ir::Bytes(type) && random_.Percent(50);
  Keep(Emit1(op, {address}, type), type);
}

void Generator::UpdateOwn() {
  const std::optional<uint32_t> picked = PickBuffer(BufferInfo::Role::kOwn);
  if (!picked || (buffers_[*picked].float_bytes != 0 && buffers_[*picked].width < 4)) {
    return;
  }
  const BufferInfo& buffer = buffers_[*picked];
  static constexpr Opcode kAtomics[] = {Opcode::kAtomicLoad,    Opcode::kAtomicAdd,  Opcode::kAtomicSub,
                                        Opcode::kAtomicAnd,     Opcode::kAtomicOr,   Opcode::kAtomicXor,
                                        Opcode::kAtomicXchg,    Opcode::kAtomicMinS, Opcode::kAtomicMaxU,
                                        Opcode::kAtomicCmpxchg, Opcode::kAtomicStore};
  const bool is_float = buffer.float_bytes != 0;
  const Opcode code = is_float ? Opcode::kAtomicFAdd : kAtomics[random_.Below(std::size(kAtomics))];
  const Type type = is_float                                   ? (buffer.float_bytes == 4 ? Type::kF32 : Type::kF64)
                    : buffer.width == 8 || random_.Percent(20) ? Type::kI64
                                                               : kI32;
  const ValueId value = Value(type, 1);
  const ValueId expected = Value(type, 0);
  const ValueId element = OwnElement(buffer);
  ValueId address;
  Op op = Access(code, type, *picked, buffer.width, element, &address);
  if (random_.Percent(traits_.risk) && buffer.width > 1) {
    op.imm = 1;
  }
  if (code == Opcode::kAtomicStore) {
    Emit(op, std::array{address, value}, {});
  } else if (code == Opcode::kAtomicLoad) {
    Keep(Emit1(op, {address}, type), type);
  } else if (code == Opcode::kAtomicCmpxchg) {
    Keep(Emit1(op, {address, expected, value}, type), type);
  } else {
    Keep(Emit1(op, {address, value}, type), type);
  }
}

// Few of the least denormal numbers or of ones: their sums are exact, in any order.
ValueId Generator::Addend(const BufferInfo& buffer) {
  const ValueId few = Binary(Opcode::kAnd, kI32, Value(kI32, 1), Int(kI32, 15));
  const Type type = buffer.width == 8 ? Type::kF64 : Type::kF32;
  if (!buffer.is_denormal) {
    return Convert(Opcode::kConvertU, kI32, few, type);
  }
  return type == Type::kF32
             ? Convert(Opcode::kReinterpret, kI32, few, type)
             : Convert(Opcode::kReinterpret, Type::kI64, Convert(Opcode::kExtendU, kI32, few, Type::kI64), type);
}

void Generator::UpdateShared() {
  const std::optional<uint32_t> picked = PickBuffer(BufferInfo::Role::kShared);
  if (!picked) {
    return;
  }
  const BufferInfo& buffer = buffers_[*picked];
  const bool is_float = buffer.float_bytes != 0, is_wide = buffer.width == 8;
  const Type type = is_float ? (is_wide ? Type::kF64 : Type::kF32) : is_wide ? Type::kI64 : kI32;
  const ValueId value = is_float ? Addend(buffer) : Value(type, 1);
  ValueId element = Int(kI32, random_.Below(static_cast<uint32_t>(buffer.count)));
  if (random_.Percent(70)) {
    element = Masked(Pick(kI32), buffer.mask);
  }
  ValueId address;
  Op op = Access(buffer.atomic, type, *picked, buffer.width, element, &address);
  Emit1(op, {address, value}, type);
}

// for (p = begin; n > 0; --n, p += step) sum += *p, in clang -O2's form.
void Generator::WalkInput() {
  const std::optional<uint32_t> picked = PickBuffer(BufferInfo::Role::kInput);
  if (!picked) {
    return;
  }
  const BufferInfo& buffer = buffers_[*picked];
  const Type address_type = kernel_.module.address_type();
  const Type type = buffer.width == 8 ? Type::kF64 : random_.Percent(60) ? Type::kF32 : kI32;
  const uint32_t step = random_.Between(1, 3), trips_max = 6;
  const uint64_t reach = uint64_t{step} * trips_max;
  if (buffer.count <= reach) {
    return;
  }
  uint32_t imm = 0;
  const ValueId element = InputElement(buffer.count - reach, &imm);
  ValueId begin;
  Op op = Access(Opcode::kLoad, type, *picked, buffer.width, element, &begin);
  op.imm = uint64_t{imm} * buffer.width;
  bool is_uniform = false;
  const ValueId raw = LoopLimit(&is_uniform);
  const ValueId limit = Binary(Opcode::kRemU, kI32, raw, Int(kI32, trips_max + 1));
  const ValueId zero = Int(type, 0);
  const OpId loop = b().BeginBlock(Opcode::kLoop, std::array{limit, begin, zero}, std::array{type}, ++source_);
  ValueId sum;
  InRegion([&] {
    const std::vector<ValueId> params = b().Params(loop);
    const ValueId ends = Compare(Opcode::kLeS, kI32, params[0], Int(kI32, 0));
    const OpId choice = b().BeginIf(ends, {}, ++source_);
    b().Leave(loop, std::array{params[2]});
    b().Else();
    b().Leave(choice, {});
    b().End();
    const ValueId loaded = Emit1(op, {params[1]}, type);
    sum = Binary(ir::IsInt(type) ? Opcode::kAdd : Opcode::kFAdd, type, params[2], loaded);
    const ValueId next =
        Binary(Opcode::kAdd, address_type, params[1], Int(address_type, uint64_t{step} * buffer.width));
    const ValueId left = Binary(Opcode::kSub, kI32, params[0], Int(kI32, 1));
    b().Continue(loop, std::array{left, next, sum}, ++source_);
  });
  b().End();
  Keep(b().Results(loop)[0], type);
}

}  // namespace hpvm::spmd
