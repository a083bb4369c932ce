// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/rewrite/copy_function.h"

#include "compiler/ir/op_syntax.h"

namespace hpvm::pass {

namespace {

template <typename T>
void Append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

FunctionCopier::FunctionCopier(const ir::Function& from)
    : made_(std::make_unique<Made>()),
      f_(from),
      to_(made_->function),
      b_(made_->builder),
      values_(from.values.size()),
      ops_(from.ops.size()) {
  to_.name = from.name;
  to_.type = from.type;
  to_.fast_math = from.fast_math;
}

FunctionCopier::FunctionCopier(const ir::Function& from, FunctionCopier& into)
    : f_(from), to_(into.to_), b_(into.b_), values_(from.values.size()), ops_(from.ops.size()) {}

void FunctionCopier::CopyAll() {
  Bind(f_.region(f_.body).first_param, b_.BeginBody());
  BeginBody();
  CopyRegion(f_.body);
}

void FunctionCopier::Bind(ValueId first, std::span<const ValueId> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values_[first.index + i] = values[i];
  }
}

std::span<const ValueId> FunctionCopier::BindKept(const ir::Slots& slots, std::span<const ValueId> values) {
  for (uint32_t i = 0; i < slots.count; ++i) {
    if (IsKept(slots[i])) {
      Bind(slots[i], values.first(1));
      values = values.subspan(1);
    }
  }
  return values;
}

std::vector<ValueId> FunctionCopier::Map(const Op& op) {
  std::vector<ValueId> values;
  for (ValueId operand : f_.operands_of(op)) {
    values.push_back(At(operand));
  }
  return values;
}

std::vector<ValueId> FunctionCopier::Brought(const Op& op, const ir::Slots& slots) {
  std::vector<ValueId> values;
  for (uint32_t i = 0; i < slots.count; ++i) {
    if (IsKept(slots[i])) {
      values.push_back(At(f_.operands_of(op)[ir::FirstBrought(op.code) + i]));
    }
  }
  return values;
}

std::vector<ir::Type> FunctionCopier::ResultTypes(const Op& op) const {
  std::vector<ir::Type> types;
  const ir::Slots results = ir::ResultsOf(op);
  for (uint32_t i = 0; i < results.count; ++i) {
    if (!ir::OwnsRegions(op.code) || IsKept(results[i])) {
      types.push_back(f_.type_of(results[i]));
    }
  }
  return types;
}

void FunctionCopier::CopyRegion(ir::RegionId region) {
  for (OpId id : f_.region(region).ops) {
    CopyOp(id);
  }
}

void FunctionCopier::CopyOp(OpId id) {
  const Op& op = f_.op(id);
  if (ir::OwnsRegions(op.code)) {
    CopyConstruct(id);
  } else if (ir::IsTerminator(op.code)) {
    CopyTerminator(id);
  } else {
    CopyPlain(op);
  }
}

void FunctionCopier::CopyPlain(const Op& op) {
  const OpId made = b_.Append(op, Map(op), ResultTypes(op));
  to_.op(made).origin = OriginOf(op);
  Bind(op.first_result, b_.Results(made));
}

void FunctionCopier::CopyConstruct(OpId id) {
  const Op& op = f_.op(id);
  std::vector<ir::Type> types = ResultTypes(op);
  Append(types, MoreTypes(id));
  OpId made;
  if (op.code == Opcode::kIf) {
    made = b_.BeginIf(ConditionOf(id), types, op.source);
    Enter(id, {});
  } else {
    const ir::Slots params = ir::ParamsOf(f_.region(op.body));
    std::vector<ValueId> arguments = Brought(op, params);
    if (op.code == Opcode::kLoop) {
      Append(arguments, MoreValues(id));
    }
    made = b_.BeginBlock(op.code, arguments, types, op.source);
    const std::vector<ValueId> made_params = b_.Params(made);
    Enter(id, BindKept(params, made_params));
  }
  to_.op(made).origin = OriginOf(op);
  ops_[id.index] = made;
  CopyRegion(op.body);
  if (op.code == Opcode::kIf) {
    b_.Else();
    EnterOtherwise(id);
    CopyRegion(op.otherwise);
  }
  b_.End();
  const std::vector<ValueId> results = b_.Results(made);
  Leave(id, BindKept(ir::ResultsOf(op), results));
}

void FunctionCopier::CopyTerminator(OpId id) {
  const Op& op = f_.op(id);
  std::vector<ValueId> operands;
  if (op.code == Opcode::kBrTable) {
    operands.push_back(ConditionOf(id));
  }
  std::vector<ir::Target> targets;
  for (const ir::Target& target : f_.targets_of(op)) {
    targets.push_back(TargetOf(target));
  }
  if (!targets.empty()) {
    Append(operands, Brought(op, ir::SlotsOf(f_, f_.targets_of(op)[0])));
    Append(operands, MoreValues(f_.targets_of(op)[0].op));
  }
  op.code == Opcode::kReturn ? CopyReturn(op) : b_.Terminate(op, operands, targets);
  SetOrigin(op);
}

}  // namespace hpvm::pass
