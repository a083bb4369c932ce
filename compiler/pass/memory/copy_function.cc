// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/copy_function.h"

#include "compiler/ir/spelling.h"

namespace hpvm {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::ValueId;

namespace {

template <typename T>
void Append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

FunctionCopier::FunctionCopier(const ir::Function& from)
    : f_(from), b_(to_), values_(from.values.size()), ops_(from.ops.size()) {
  to_.name = from.name;
  to_.type = from.type;
  to_.fast_math = from.fast_math;
}

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

std::vector<ValueId> FunctionCopier::Map(const Op& op, uint32_t first) const {
  std::vector<ValueId> values;
  for (uint32_t i = first; i < op.operand_count; ++i) {
    values.push_back(values_[f_.operands_of(op)[i].index]);
  }
  return values;
}

std::vector<ir::Type> FunctionCopier::ResultTypes(const Op& op) const {
  std::vector<ir::Type> types;
  for (uint32_t i = 0; i < op.result_count; ++i) {
    types.push_back(f_.type_of(ValueId(op.first_result.index + i)));
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
    CopyTerminator(op);
  } else {
    CopyPlain(op);
  }
}

void FunctionCopier::CopyPlain(const Op& op) {
  const OpId made = b_.Append(op, Map(op), ResultTypes(op));
  Bind(op.first_result, b_.Results(made));
}

void FunctionCopier::CopyConstruct(OpId id) {
  const Op& op = f_.op(id);
  std::vector<ir::Type> types = ResultTypes(op);
  Append(types, MoreTypes(id));
  const bool is_loop = op.code == Opcode::kLoop;
  OpId made;
  if (op.code == Opcode::kIf) {
    made = b_.BeginIf(Map(op)[0], types, op.source);
    Enter(id, {});
  } else {
    std::vector<ValueId> arguments = Map(op);
    if (is_loop) {
      Append(arguments, MoreValues(id));
    }
    made = b_.BeginBlock(op.code, arguments, types, op.source);
    const std::vector<ValueId> params = b_.Params(made);
    const size_t own = f_.region(op.body).param_count;
    Bind(f_.region(op.body).first_param, std::span(params).first(own));
    Enter(id, std::span(params).subspan(own));
  }
  to_.op(made).origin = op.origin;
  ops_[id.index] = made;
  CopyRegion(op.body);
  if (op.code == Opcode::kIf) {
    b_.Else();
    EnterOtherwise(id);
    CopyRegion(op.otherwise);
  }
  b_.End();
  const std::vector<ValueId> results = b_.Results(made);
  Bind(op.first_result, std::span(results).first(op.result_count));
  Leave(id, std::span(results).subspan(op.result_count));
}

void FunctionCopier::CopyTerminator(const Op& op) {
  std::vector<ir::Target> targets;
  for (const ir::Target& target : f_.targets_of(op)) {
    targets.push_back({ops_[target.op.index], target.is_continue});
  }
  std::vector<ValueId> values = Map(op, op.code == Opcode::kLeaveTable ? 1 : 0);
  if (!targets.empty()) {
    Append(values, MoreValues(f_.targets_of(op)[0].op));
  }
  switch (op.code) {
    case Opcode::kLeave:
      b_.Leave(targets[0].op, values, op.source);
      break;
    case Opcode::kContinue:
      b_.Continue(targets[0].op, values, op.source);
      break;
    case Opcode::kLeaveTable:
      b_.LeaveTable(Map(op)[0], targets, values, op.source);
      break;
    case Opcode::kTrap:
      b_.Trap(static_cast<ir::TrapCode>(op.imm), op.source);
      break;
    default:
      b_.Return(values, op.source);
  }
  SetOrigin(op);
}

}  // namespace hpvm
