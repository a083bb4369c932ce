// SPDX-License-Identifier: Apache-2.0
// Work that a tile's instances do one after the other: constructs in which their control differs, and the whole kernel
// if a guard differs.

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/tile/coarsener.h"

namespace hpvm::pass {

// Returns the dimensions along which any value in the construct differs.
std::array<bool, 2> Coarsener::DimensionsIn(OpId construct) const {
  std::array<bool, 2> dimensions{};
  ir::ForEachOpOf(f_, construct, [&](OpId id) {
    const Op& op = f_.op(id);
    NoteDimensions(op, &dimensions);
    for (size_t d = 0; d < 2 && op.code == Opcode::kInstanceId; ++d) {
      dimensions[d] = dimensions[d] || LayoutOf(op.first_result).Differs(d);
    }
  });
  return dimensions;
}

void Coarsener::Replicate(OpId id) {
  const Op& op = f_.op(id);
  const std::array<bool, 2> dimensions = DimensionsIn(id);
  for (uint32_t y = 0; y < Count(1, dimensions[1]); ++y) {
    for (uint32_t x = 0; x < Count(0, dimensions[0]); ++x) {
      clones_.assign(f_.values.size(), ValueId());
      Copy copy;
      copy.lane = {x, y};
      BeginLane(copy.lane);
      CloneConstruct(id, copy);
      for (const ValueId result : ir::ResultsOf(op)) {
        Keep(result, {x, y}, clones_[result.index]);
      }
    }
  }
  BeginLane(Lane());
}

ValueId Coarsener::Here(ValueId id, const Copy& copy) {
  return clones_[id.index].valid() ? clones_[id.index] : At(id, copy.lane);
}

std::vector<ValueId> Coarsener::OperandsHere(const Op& op, const Copy& copy) {
  std::vector<ValueId> operands;
  for (ValueId operand : f_.operands_of(op)) {
    operands.push_back(Here(operand, copy));
  }
  return operands;
}

void Coarsener::CloneRegion(RegionId region, Copy& copy) {
  OpenScope();
  for (OpId id : f_.region(region).ops) {
    CloneOp(id, copy);
  }
  CloseScope();
}

void Coarsener::CloneOp(OpId id, Copy& copy) {
  const Op& op = f_.op(id);
  if (ir::OwnsRegions(op.code)) {
    return CloneConstruct(id, copy);
  }
  if (ir::IsTerminator(op.code)) {
    return CloneTerminator(id, copy);
  }
  const std::vector<ValueId> operands = OperandsHere(op, copy);
  if (op.code == Opcode::kInstanceId) {
    ValueId here = FirstId(id, operands[0]);
    const uint64_t d = definitions_.ConstantOf(f_.operands_of(op)[0]).value_or(3);
    if (d < 2 && copy.is_slow && copy.at[d]) {
      const ValueId at = op.type == Type::kI64 ? Widened(*copy.at[d]) : *copy.at[d];
      here = Add(Opcode::kAdd, op.type, std::array{here, at});
    } else if (d < 2 && !copy.is_slow) {
      here = Plus(here, d == 0 ? copy.lane.x : copy.lane.y);
    }
    clones_[op.first_result.index] = here;
    return;
  }
  Charge(op);
  const std::vector<Type> types = TypesOf(op.first_result, op.result_count, false);
  const OpId appended = AppendAccess(id, op, operands, types);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    clones_[op.first_result.index + i] = ValueId(out_.op(appended).first_result.index + i);
  }
}

void Coarsener::CloneConstruct(OpId id, Copy& copy) {
  const Op& op = f_.op(id);
  const std::vector<Type> results = TypesOf(op.first_result, op.result_count, false);
  const std::vector<ValueId> operands = OperandsHere(op, copy);
  if (op.code == Opcode::kIf) {
    new_ops_[id.index] = builder_.BeginIf(operands[0], results, op.source);
    CloneRegion(op.body, copy);
    builder_.Else();
    CloneRegion(op.otherwise, copy);
  } else {
    const OpId made = builder_.BeginBlock(op.code, operands, results, op.source);
    new_ops_[id.index] = made;
    const std::vector<ValueId> params = builder_.Params(made);
    for (uint32_t i = 0; i < params.size(); ++i) {
      clones_[f_.region(op.body).first_param.index + i] = params[i];
    }
    const double outside = weight_;
    weight_ *= op.code == Opcode::kLoop ? 16 : 1;
    CloneRegion(op.body, copy);
    weight_ = outside;
  }
  builder_.End();
  const OpId made = new_ops_[id.index];
  out_.op(made).origin = op.origin;
  for (uint32_t i = 0; i < op.result_count; ++i) {
    clones_[op.first_result.index + i] = ValueId(out_.op(made).first_result.index + i);
  }
}

void Coarsener::CloneTerminator(OpId id, Copy& copy) {
  const Op& op = f_.op(id);
  const std::vector<ValueId> operands = OperandsHere(op, copy);
  // Only the kernel's body on the slow path returns: constructs that are copied for a tile do not
  // (GangPlan::body_is_masked).
  op.code == Opcode::kReturn ? builder_.Leave(copy.body, {}, op.source)
                             : builder_.Terminate(op, operands, NewTargets(op));
}

// loop (t = 0) { block { the kernel at lane t }  t + 1 < lanes ? continue : br }
void Coarsener::EmitSlowWay() {
  const Type type = Type::kI32;
  const uint32_t width = plan_.tile[0], lanes = width * plan_.tile[1];
  clones_.assign(f_.values.size(), ValueId());
  for (uint32_t i = 0; i < module_.params.size(); ++i) {
    const ValueId param(f_.region(f_.body).first_param.index + i);
    clones_[param.index] = copies_[param.index][0];
  }
  const OpId loop = builder_.BeginBlock(Opcode::kLoop, std::array{Number(type, 0)}, {});
  OpenScope();
  const ValueId turn = builder_.Params(loop)[0];
  Copy copy;
  copy.is_slow = true;
  copy.at[0] = turn;
  if (plan_.tile[1] > 1) {
    copy.at[0] = Add(Opcode::kRemU, type, std::array{turn, Number(type, width)});
    copy.at[1] = Add(Opcode::kDivU, type, std::array{turn, Number(type, width)});
  }
  computed_ = {*copy.at[0], copy.at[1].value_or(ValueId())};
  SetLane({CoarseModule::kComputed, CoarseModule::kComputed});
  copy.body = builder_.BeginBlock(Opcode::kBlock, {}, {});
  CloneRegion(f_.body, copy);
  builder_.End();
  BeginLane(Lane());
  const ValueId next = Plus(turn, 1);
  const OpId again = builder_.BeginIf(Add(Opcode::kLtU, type, std::array{next, Number(type, lanes)}), {});
  builder_.Continue(loop, std::array{next});
  builder_.Else();
  builder_.Leave(again, {});
  builder_.End();
  builder_.Leave(loop, {});
  CloseScope();
  builder_.End();
  builder_.Return({});
}

}  // namespace hpvm::pass
