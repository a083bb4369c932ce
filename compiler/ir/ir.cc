// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/ir.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>
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

// Indexed by enumerator.
constexpr std::string_view kTypeNames[] = {"i32", "i64", "f32", "f64"};
constexpr std::string_view kSpaceNames[] = {"flat", "param", "module", "stack", "private", "group", "state", "scratch"};
constexpr std::string_view kTrapNames[] = {
    "no trap",
    "unreachable code reached",
    "out of bounds memory access",
    "integer division by zero",
    "integer overflow",
    "invalid conversion of a float to an integer",
    "indirect call to a missing function or one of another type",
    "call stack exhausted",
    "misaligned atomic access",
    "barrier that not every instance of the group reached",
    "failed assertion",
    "group memory exhausted",
    "store into a read-only buffer",
    "out of bounds table access",
    "indirect call to an element outside the table",
    "indirect call through a null reference",
    "atomic wait on memory that is not shared",
    "atomic wait that nothing can end",
    "trap in a function of another module",
};
static_assert(std::size(kTrapNames) == static_cast<size_t>(TrapCode::kHost) + 1);

std::string_view NameIn(std::span<const std::string_view> names, size_t index, std::string_view other) {
  return index < names.size() ? names[index] : other;
}

}  // namespace

std::string_view Name(Type type) { return NameIn(kTypeNames, static_cast<size_t>(type), "?"); }
std::string_view Name(Space space) { return NameIn(kSpaceNames, static_cast<size_t>(space), "?"); }

std::string_view Name(TrapCode code) {
  return code == kLoopsCut               ? "loops that the device's driver ended early"
         : code == TrapCode::kStopped    ? "stopped"
         : code == TrapCode::kWrongProof ? "access outside of its buffer that was proven to lie inside"
                                         : NameIn(kTrapNames, static_cast<size_t>(code), "unknown trap");
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
  Op op{.code = Opcode::kConst, .type = type, .imm = Bytes(type) == 4 ? static_cast<uint32_t>(bits) : bits};
  return Append1(op, {}, type);
}

OpId Builder::BeginBlock(Opcode block_or_loop, std::span<const ValueId> arguments, std::span<const Type> results,
                         uint32_t source) {
  HPVMD_CHECK(block_or_loop == Opcode::kBlock || block_or_loop == Opcode::kLoop);
  Op op{.code = block_or_loop, .source = source};
  const OpId id = Append(op, arguments, results);
  Region region;
  region.owner = id;
  region.first_param = NewValues(f_.types_of(arguments));
  region.param_count = static_cast<uint32_t>(arguments.size());
  f_.op(id).body = RegionId(f_.regions.size());
  open_.push_back(f_.op(id).body);
  f_.regions.push_back(std::move(region));
  return id;
}

OpId Builder::BeginIf(ValueId condition, std::span<const Type> results, uint32_t source) {
  Op op{.code = Opcode::kIf, .source = source};
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
  // An if ends only after its second region; a function's body ends with the builder.
  HPVMD_CHECK(!owner.valid() || f_.op(owner).code != Opcode::kIf || f_.op(owner).otherwise == open_.back());
  open_.pop_back();
}

void Builder::Terminate(const Op& like, std::span<const ValueId> operands, std::span<const Target> targets) {
  Op op{.code = like.code, .imm = like.imm, .source = like.source};
  if (op.code == Opcode::kBr || op.code == Opcode::kContinue) {
    op.code = targets[0].is_continue ? Opcode::kContinue : Opcode::kBr;
  }
  op.first_target = static_cast<uint32_t>(f_.targets.size());
  op.target_count = static_cast<uint32_t>(targets.size());
  f_.targets.insert(f_.targets.end(), targets.begin(), targets.end());
  Append(op, operands, {});
}

void Builder::Leave(OpId target, std::span<const ValueId> values, uint32_t source) {
  Terminate({.code = Opcode::kBr, .source = source}, values, std::array{Target{target, false}});
}

void Builder::Continue(OpId loop, std::span<const ValueId> values, uint32_t source) {
  Terminate({.code = Opcode::kContinue, .source = source}, values, std::array{Target{loop, true}});
}

void Builder::BrTable(ValueId index, std::span<const Target> targets, std::span<const ValueId> values,
                      uint32_t source) {
  std::vector<ValueId> operands{index};
  operands.insert(operands.end(), values.begin(), values.end());
  Terminate({.code = Opcode::kBrTable, .source = source}, operands, targets);
}

void Builder::Return(std::span<const ValueId> values, uint32_t source) {
  Terminate({.code = Opcode::kReturn, .source = source}, values, {});
}

void Builder::Trap(TrapCode code, uint32_t source) {
  Terminate({.code = Opcode::kTrap, .imm = static_cast<uint64_t>(code), .source = source}, {}, {});
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
