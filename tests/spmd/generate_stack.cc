// SPDX-License-Identifier: Apache-2.0
// Arrays on the shadow stack, in compilers' layout.
#include <algorithm>
#include <array>

#include "tests/spmd/generator.h"

namespace hpvm::spmd {
namespace {

constexpr Type kI32 = Type::kI32;
constexpr uint64_t kTop = 0x8000;

}  // namespace

void Generator::AddStack() {
  // Lists of known differences name other seeds, whose kernels must not change.
  if (kernel_.seed < 64 || kernel_.seed % 4 != 1 || traits_.is_refused) {
    return;
  }
  ir::Module& m = kernel_.module;
  m.memory_bytes = m.memory_bytes_max = 65536;
  m.stack_pointer = static_cast<uint32_t>(m.globals.size());
  m.globals.push_back({m.address_type(), true, kTop});
  // An access that misses a buffer may hit the stack; in lockstep it traps there.
  traits_.risk = 0;
  frame_bytes_ = 8u << random_.Below(6);
  only_eights_ = random_.Percent(15);
}

void Generator::OpenStack() {
  if (frame_bytes_ == 0) {
    return;
  }
  const Type type = kernel_.module.address_type();
  Op get{.code = Opcode::kGlobalGet};
  get.type = type;
  get.imm = *kernel_.module.stack_pointer;
  top_ = Emit1(get, {}, type);
  frame_ = Binary(Opcode::kSub, type, top_, Int(type, frame_bytes_));
  SetStack(frame_);
}

void Generator::CloseStack() {
  if (frame_bytes_ != 0) {
    SetStack(top_);
  }
}

void Generator::SetStack(ValueId pointer) {
  Op set{.code = Opcode::kGlobalSet};
  set.type = kernel_.module.address_type();
  set.imm = *kernel_.module.stack_pointer;
  Emit(set, std::array{pointer}, {});
}

// A slot of `width` bytes: a constant one, one for all instances or one for each.
Op Generator::StackSlot(Opcode code, Type type, uint32_t width, ValueId* address) {
  Op op{.code = code};
  op.type = type;
  op.width = static_cast<uint8_t>(width);
  if (width < 16 && width < frame_bytes_ && random_.Percent(12)) {  // Not at the beginning of a word.
    const ValueId any = Masked(Value(kI32, 1), frame_bytes_ / 2 - 1);
    const uint32_t most = frame_bytes_ / 2 - std::min(width, frame_bytes_ / 2);
    *address = AddressOf(frame_, any, 1, /*is_param=*/false);
    op.imm = random_.Below(most + 1);
    return op;
  }
  const uint32_t slots = frame_bytes_ / width;
  if (random_.Percent(35)) {
    *address = frame_;
    op.imm = uint64_t{random_.Below(slots)} * width;
    return op;
  }
  const ValueId any = random_.Percent(50) ? PickUniform(kI32) : random_.Percent(50) ? linear_ : Value(kI32, 1);
  *address = AddressOf(frame_, Masked(any, slots - 1), width, /*is_param=*/false);
  return op;
}

void Generator::StackStatement() {
  static constexpr uint32_t kWidths[] = {1, 2, 4, 4, 4, 4, 8, 8, 16};
  const uint32_t width = only_eights_ ? 8 : std::min(kWidths[random_.Below(std::size(kWidths))], frame_bytes_);
  const bool is_store = random_.Percent(55);
  ValueId address;
  if (width == 16) {
    const Op op = StackSlot(is_store ? Opcode::kStore128 : Opcode::kLoad128, kI32, 16, &address);
    if (is_store) {
      const ValueId value = Pick(kI32);
      Emit(op, std::array{address, value, Pick(kI32), value, Pick(kI32)}, {});
      return;
    }
    const OpId made = Emit(op, std::array{address}, std::array{kI32, kI32, kI32, kI32});
    for (ValueId value : b().Results(made)) {
      Keep(value, kI32);
    }
    return;
  }
  const Type floats = width == 8 ? Type::kF64 : Type::kF32;
  const Type type = width >= 4 && random_.Percent(40) ? floats : width == 8 || random_.Percent(25) ? Type::kI64 : kI32;
  if (is_store) {
    ValueId value = Value(type, 1);
    value = ir::IsInt(type) ? value : NoNan(type, value);
    const Op op = StackSlot(Opcode::kStore, type, width, &address);
    Emit(op, std::array{address, value}, {});
    return;
  }
  Op op = StackSlot(Opcode::kLoad, type, width, &address);
  op.sign = width < ir::Bytes(type) && random_.Percent(50);
  const ValueId value = Emit1(op, {address}, type);
  Keep(ir::IsInt(type) ? value : NoNan(type, value), type);
}

}  // namespace hpvm::spmd
