// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/ir.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/status.h"
#include "compiler/ir/loops_cut.h"

namespace hpvm::ir {
namespace {

constexpr OpcodeInfo kOpcodes[] = {
#define HPVM_OP(name, text, effects, family) {Opcode::name, text, effects, family},
#include "compiler/ir/opcodes.def"
#undef HPVM_OP
};

}  // namespace

std::string_view Name(Type type) {
  switch (type) {
    case Type::kI32:
      return "i32";
    case Type::kI64:
      return "i64";
    case Type::kF32:
      return "f32";
    case Type::kF64:
      return "f64";
  }
  return "?";
}

std::string_view Name(Space space) {
  switch (space) {
    case Space::kFlat:
      return "flat";
    case Space::kParam:
      return "param";
    case Space::kModule:
      return "module";
    case Space::kPrivate:
      return "private";
    case Space::kGroup:
      return "group";
    case Space::kState:
      return "state";
    case Space::kScratch:
      return "scratch";
  }
  return "?";
}

std::string_view Name(TrapCode code) {
  if (code == kLoopsCut) {
    return "loops that the device's driver ended early";
  }
  switch (code) {
    case TrapCode::kNone:
      return "no trap";
    case TrapCode::kUnreachable:
      return "unreachable code reached";
    case TrapCode::kOutOfBounds:
      return "out of bounds memory access";
    case TrapCode::kDivideByZero:
      return "integer division by zero";
    case TrapCode::kIntegerOverflow:
      return "integer overflow";
    case TrapCode::kInvalidConversion:
      return "invalid conversion of a float to an integer";
    case TrapCode::kIndirectCall:
      return "indirect call to a missing function or one of another type";
    case TrapCode::kStackOverflow:
      return "call stack exhausted";
    case TrapCode::kMisalignedAtomic:
      return "misaligned atomic access";
    case TrapCode::kBarrierDivergence:
      return "barrier that not every instance of the group reached";
    case TrapCode::kAssert:
      return "failed assertion";
    case TrapCode::kGroupMemoryExhausted:
      return "group memory exhausted";
    case TrapCode::kReadOnlyBuffer:
      return "store into a read-only buffer";
    case TrapCode::kTableOutOfBounds:
      return "out of bounds table access";
    case TrapCode::kUndefinedElement:
      return "indirect call to an element outside the table";
    case TrapCode::kUninitializedElement:
      return "indirect call through a null reference";
    case TrapCode::kExpectedShared:
      return "atomic wait on memory that is not shared";
    case TrapCode::kWaitsForever:
      return "atomic wait that nothing can end";
    case TrapCode::kHost:
      return "trap in a function of another module";
    case TrapCode::kStopped:
      return "stopped";
    case TrapCode::kWrongProof:
      return "access outside of its buffer that was proven to lie inside";
  }
  return "unknown trap";
}

const OpcodeInfo& Info(Opcode code) { return kOpcodes[static_cast<size_t>(code)]; }

bool OpcodeFromText(std::string_view text, Opcode* code) {
  static const auto* const kByText = [] {
    auto* map = new std::unordered_map<std::string_view, Opcode>;
    for (const OpcodeInfo& info : kOpcodes) {
      map->emplace(info.text, info.code);
    }
    return map;
  }();
  const auto found = kByText->find(text);
  if (found == kByText->end()) {
    return false;
  }
  *code = found->second;
  return true;
}

ValueId Builder::NewValues(std::span<const Type> types) {
  const ValueId first(f_.values.size());
  for (Type type : types) {
    f_.values.push_back(Value{type});
  }
  return first;
}

std::span<const ValueId> Builder::BeginBody() {
  HPVMD_CHECK(open_.empty() && !f_.body.valid());
  f_.body = RegionId(f_.regions.size());
  Region region;
  region.first_param = NewValues(f_.type.params);
  region.param_count = static_cast<uint32_t>(f_.type.params.size());
  for (uint32_t i = 0; i < region.param_count; ++i) {
    body_params_.push_back(ValueId(region.first_param.index + i));
  }
  f_.regions.push_back(std::move(region));
  open_.push_back(f_.body);
  return body_params_;
}

OpId Builder::Append(Op op, std::span<const ValueId> operands, std::span<const Type> results) {
  HPVMD_CHECK(!open_.empty() && !Terminated());
  op.first_operand = static_cast<uint32_t>(f_.operands.size());
  op.operand_count = static_cast<uint32_t>(operands.size());
  f_.operands.insert(f_.operands.end(), operands.begin(), operands.end());
  op.first_result = NewValues(results);
  op.result_count = static_cast<uint32_t>(results.size());
  const OpId id(f_.ops.size());
  f_.ops.push_back(op);
  f_.region(open_.back()).ops.push_back(id);
  return id;
}

ValueId Builder::Append1(Op op, std::span<const ValueId> operands, Type result) {
  return f_.op(Append(op, operands, std::array{result})).first_result;
}

ValueId Builder::Const(Type type, uint64_t bits) {
  Op op{.code = Opcode::kConst};
  op.type = type;
  op.imm = Bytes(type) == 4 ? static_cast<uint32_t>(bits) : bits;
  return Append1(op, {}, type);
}

OpId Builder::BeginBlock(Opcode block_or_loop, std::span<const ValueId> arguments, std::span<const Type> results,
                         uint32_t source) {
  HPVMD_CHECK(block_or_loop == Opcode::kBlock || block_or_loop == Opcode::kLoop);
  Op op{.code = block_or_loop};
  op.source = source;
  const OpId id = Append(op, arguments, results);
  std::vector<Type> types;
  for (ValueId argument : arguments) {
    types.push_back(f_.type_of(argument));
  }
  Region region;
  region.owner = id;
  region.first_param = NewValues(types);
  region.param_count = static_cast<uint32_t>(types.size());
  f_.op(id).body = RegionId(f_.regions.size());
  open_.push_back(f_.op(id).body);
  f_.regions.push_back(std::move(region));
  return id;
}

OpId Builder::BeginIf(ValueId condition, std::span<const Type> results, uint32_t source) {
  Op op{.code = Opcode::kIf};
  op.source = source;
  const OpId id = Append(op, std::array{condition}, results);
  Region region;
  region.owner = id;
  region.first_param = ValueId(f_.values.size());
  f_.op(id).body = RegionId(f_.regions.size());
  f_.op(id).otherwise = RegionId(f_.regions.size() + 1);
  f_.regions.push_back(region);
  f_.regions.push_back(std::move(region));
  open_.push_back(f_.op(id).body);
  return id;
}

void Builder::Else() {
  HPVMD_CHECK(!open_.empty() && Terminated());
  const OpId owner = f_.region(open_.back()).owner;
  HPVMD_CHECK(owner.valid() && f_.op(owner).code == Opcode::kIf && f_.op(owner).body == open_.back());
  open_.back() = f_.op(owner).otherwise;
}

void Builder::End() {
  HPVMD_CHECK(!open_.empty() && Terminated());
  const OpId owner = f_.region(open_.back()).owner;
  // An if ends after its second region only; a function's body ends with the builder.
  HPVMD_CHECK(!owner.valid() || f_.op(owner).code != Opcode::kIf || f_.op(owner).otherwise == open_.back());
  open_.pop_back();
}

OpId Builder::AppendTerminator(Op op, std::span<const ValueId> values, std::span<const Target> targets) {
  op.first_target = static_cast<uint32_t>(f_.targets.size());
  op.target_count = static_cast<uint32_t>(targets.size());
  f_.targets.insert(f_.targets.end(), targets.begin(), targets.end());
  return Append(op, values, {});
}

void Builder::Leave(OpId target, std::span<const ValueId> values, uint32_t source) {
  Op op{.code = Opcode::kLeave};
  op.source = source;
  AppendTerminator(op, values, std::array{Target{target, false}});
}

void Builder::Continue(OpId loop, std::span<const ValueId> values, uint32_t source) {
  Op op{.code = Opcode::kContinue};
  op.source = source;
  AppendTerminator(op, values, std::array{Target{loop, true}});
}

void Builder::LeaveTable(ValueId index, std::span<const Target> targets, std::span<const ValueId> values,
                         uint32_t source) {
  Op op{.code = Opcode::kLeaveTable};
  op.source = source;
  std::vector<ValueId> operands{index};
  operands.insert(operands.end(), values.begin(), values.end());
  AppendTerminator(op, operands, targets);
}

void Builder::Return(std::span<const ValueId> values, uint32_t source) {
  Op op{.code = Opcode::kReturn};
  op.source = source;
  AppendTerminator(op, values, {});
}

void Builder::Trap(TrapCode code, uint32_t source) {
  Op op{.code = Opcode::kTrap};
  op.source = source;
  op.imm = static_cast<uint64_t>(code);
  AppendTerminator(op, {}, {});
}

std::vector<ValueId> Builder::Params(OpId block_or_loop) const {
  std::vector<ValueId> params;
  const Region& region = f_.region(f_.op(block_or_loop).body);
  for (uint32_t i = 0; i < region.param_count; ++i) {
    params.push_back(ValueId(region.first_param.index + i));
  }
  return params;
}

std::vector<ValueId> Builder::Results(OpId op) const {
  std::vector<ValueId> results;
  for (uint32_t i = 0; i < f_.op(op).result_count; ++i) {
    results.push_back(ValueId(f_.op(op).first_result.index + i));
  }
  return results;
}

bool Builder::Terminated() const {
  const Region& region = f_.region(open_.back());
  return !region.ops.empty() && IsTerminator(f_.op(region.ops.back()).code);
}

}  // namespace hpvm::ir
