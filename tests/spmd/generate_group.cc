// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "tests/spmd/generator.h"

namespace hpvm::spmd {
namespace {

constexpr Type kI32 = Type::kI32;

}  // namespace

void Generator::AllocateGroupMemory() {
  const Type type = kernel_.module.address_type();
  group_slots_ = 1;
  ValueId slot = Int(kI32, 0);
  for (uint32_t d = 3; d-- > 0;) {
    const ValueId local = Emit1({.code = Opcode::kLocalId}, {Int(kI32, d)}, kI32);
    const ValueId size = Emit1({.code = Opcode::kGroupSize}, {Int(kI32, d)}, kI32);
    slot = Binary(Opcode::kAdd, kI32, Binary(Opcode::kMul, kI32, slot, size), local);
    group_slots_ *= static_cast<uint32_t>(kernel_.group[d]);
  }
  group_slot_ = slot;
  Keep(slot, kI32);
  Op allocate{.code = Opcode::kLocalAlloc};
  allocate.type = type;
  group_memory_ = Emit1(allocate, {Int(type, uint64_t{group_slots_} * 8)}, type);
}

void Generator::OwnStatements(uint32_t count) {
  std::vector<Label> labels;
  labels.swap(body_->labels);
  Statements(count);
  labels.swap(body_->labels);
}

void Generator::GroupStatements(uint32_t count) {
  for (; count > 0 && budget_ > 0; --count) {
    OwnStatements(random_.Between(1, 4));
    const uint32_t kind = random_.Below(depth_ < 3 ? 10 : 6);
    if (kind < 6) {
      Exchange();
    } else if (kind < 9) {
      UniformLoop();
    } else {
      UniformIf();
    }
  }
}

void Generator::Exchange() {
  const Type address_type = kernel_.module.address_type();
  const Type type = AnyType();
  const auto width = static_cast<uint32_t>(ir::Bytes(type));
  const auto address = [&](ValueId slot) {
    ValueId offset = Binary(Opcode::kMul, kI32, slot, Int(kI32, width));
    if (address_type == Type::kI64) {
      offset = Convert(Opcode::kExtendU, kI32, offset, address_type);
    }
    return Binary(Opcode::kAdd, address_type, group_memory_, offset);
  };
  Op op{.code = Opcode::kStore};
  op.type = type;
  op.width = static_cast<uint8_t>(width);
  op.space = random_.Percent(60) ? ir::Space::kGroup : ir::Space::kFlat;
  // Another exchange may read a part of it as an integer.
  const ValueId exchanged = Value(type, 1);
  const ValueId value = ir::IsInt(type) ? exchanged : NoNan(type, exchanged);
  Emit(op, std::array{address(group_slot_), value}, {});
  Emit({.code = Opcode::kBarrier}, {}, {});
  for (uint32_t i = random_.Between(1, 2); i > 0; --i) {
    ValueId other = Pick(kI32);
    if (random_.Percent(60)) {
      other = Binary(Opcode::kAdd, kI32, group_slot_, Int(kI32, random_.Below(9)));
    }
    const ValueId slot = Binary(Opcode::kRemU, kI32, other, Int(kI32, group_slots_));
    op.code = Opcode::kLoad;
    Keep(Emit1(op, {address(slot)}, type), type);
  }
  // Before the next write to it.
  Emit({.code = Opcode::kBarrier}, {}, {});
}

void Generator::UniformLoop() {
  const std::vector<Type> types = ResultTypes();
  std::vector<ValueId> arguments{Int(kI32, 0)};
  for (ValueId value : Values(types)) {
    arguments.push_back(value);
  }
  const ValueId limit = random_.Percent(60) ? Int(kI32, random_.Below(4)) : Masked(PickUniform(kI32), 3);
  const OpId loop = b().BeginBlock(Opcode::kLoop, arguments, types, ++source_);
  ++depth_;
  ++body_->loops;
  InRegion([&] {
    const std::vector<ValueId> params = b().Params(loop);
    Keep(params[0], kI32, /*is_uniform=*/true);
    for (size_t i = 0; i < types.size(); ++i) {
      Keep(params[i + 1], types[i]);
    }
    const ValueId ends = Compare(Opcode::kGeS, kI32, params[0], limit);
    const OpId choice = b().BeginIf(ends, {}, ++source_);
    b().Leave(loop, std::span(params).subspan(1));
    b().Else();
    b().Leave(choice, {});
    b().End();
    GroupStatements(random_.Between(1, 2));
    std::vector<ValueId> next{Binary(Opcode::kAdd, kI32, params[0], Int(kI32, 1))};
    for (ValueId value : Values(types)) {
      next.push_back(value);
    }
    b().Continue(loop, next, ++source_);
  });
  b().End();
  --depth_;
  --body_->loops;
  const std::vector<ValueId> results = b().Results(loop);
  for (size_t i = 0; i < results.size(); ++i) {
    Keep(results[i], types[i]);
  }
}

void Generator::UniformIf() {
  const std::vector<Type> types = ResultTypes();
  ValueId condition = UniformCondition();
  if (random_.Percent(50)) {
    condition = Masked(Emit1({.code = Opcode::kGroupId}, {Int(kI32, random_.Below(2))}, kI32), 1);
  }
  const OpId choice = b().BeginIf(condition, types, ++source_);
  ++depth_;
  for (int arm = 0; arm < 2; ++arm) {
    InRegion([&] {
      GroupStatements(arm == 0 || random_.Percent(50) ? 1 : 0);
      b().Leave(choice, Values(types), ++source_);
    });
    arm == 0 ? b().Else() : b().End();
  }
  --depth_;
  const std::vector<ValueId> results = b().Results(choice);
  for (size_t i = 0; i < results.size(); ++i) {
    Keep(results[i], types[i]);
  }
}

}  // namespace hpvm::spmd
