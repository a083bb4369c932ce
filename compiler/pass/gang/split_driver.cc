// SPDX-License-Identifier: Apache-2.0
// What runs once a group: control around barriers, scalars, and calls of the segments' loops.
#include "compiler/ir/spelling.h"
#include "compiler/pass/gang/split_build.h"

namespace hpvm {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Target;
using ir::ValueId;

class DriverBuilder {
 public:
  DriverBuilder(const ir::Module& module, const Function& f, const GroupPlan& plan,
                const std::vector<SegmentCall>& calls)
      : module_(module),
        f_(f),
        plan_(plan),
        calls_(calls),
        builder_(out_),
        values_(f.values.size()),
        ops_(f.ops.size()),
        ways_(f.ops.size()) {}

  Function Run() {
    out_.name = f_.name + ".group";
    out_.type = f_.type;
    const std::span<const ValueId> params = builder_.BeginBody();
    for (size_t i = 0; i < params.size(); ++i) {
      values_[f_.region(f_.body).first_param.index + i] = params[i];
    }
    EmitRegion(f_.body);
    return std::move(out_);
  }

 private:
  uint32_t OriginOf(const Op& op) const { return op.origin != 0 ? op.origin : module_.entry.index + 1; }

  // Constants may stand where group level does not go.
  ValueId Value(ValueId value) {
    const OpId definition = plan_.definition[value.index];
    if (definition.valid() && f_.op(definition).code == Opcode::kConst) {
      return builder_.Const(f_.type_of(value), f_.op(definition).imm);
    }
    HPVMD_CHECK(values_[value.index].valid());
    return values_[value.index];
  }

  void EmitRegion(RegionId region) {
    for (const GroupStep& step : plan_.steps[region.index]) {
      switch (step.kind) {
        case GroupStep::Kind::kScalar:
          EmitScalar(f_.op(step.op));
          break;
        case GroupStep::Kind::kSegment:
          EmitCall(step.segment);
          break;
        case GroupStep::Kind::kConstruct:
          EmitConstruct(step.op);
          break;
        case GroupStep::Kind::kEnd:
          EmitEnd(step.op);
          break;
      }
    }
    if (plan_.tails[region.index].has_value()) {
      EmitTailEnd(region, *plan_.tails[region.index]);
    }
  }

  void EmitScalar(const Op& op) {
    std::vector<ValueId> operands;
    for (ValueId operand : f_.operands_of(op)) {
      operands.push_back(Value(operand));
    }
    Op copy = op;
    copy.origin = OriginOf(op);
    values_[op.first_result.index] = builder_.Append1(copy, operands, f_.type_of(op.first_result));
  }

  void EmitCall(uint32_t segment) {
    const SegmentCall& call = calls_[segment];
    if (!call.loop.valid()) {
      return;
    }
    std::vector<ValueId> operands;
    for (const SegmentArgument& argument : call.arguments) {
      if (argument.scalar.valid()) {
        operands.push_back(Value(argument.scalar));
        continue;
      }
      Op query{.code = argument.query};
      query.type = argument.type;
      const ValueId dimension = builder_.Const(ir::Type::kI32, argument.dimension);
      operands.push_back(builder_.Append1(query, std::array{dimension}, argument.type));
    }
    Op op{.code = Opcode::kCall};
    op.imm = call.loop.index;
    op.origin = module_.entry.index + 1;
    if (!call.is_checked) {
      builder_.Append(op, operands, {});
      return;
    }
    ways_[plan_.segments[segment].checked.index] = builder_.Append1(op, operands, ir::Type::kI32);
  }

  std::vector<ValueId> Scalars(ValueId first, uint32_t count, const Op& from, uint32_t first_operand) {
    std::vector<ValueId> values;
    for (uint32_t i = 0; i < count; ++i) {
      if (plan_.is_scalar[first.index + i]) {
        values.push_back(Value(f_.operands_of(from)[first_operand + i]));
      }
    }
    return values;
  }
  void Bind(ValueId first, uint32_t count, const std::vector<ValueId>& made) {
    size_t next = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (plan_.is_scalar[first.index + i]) {
        values_[first.index + i] = made[next++];
      }
    }
  }

  void EmitConstruct(OpId id) {
    const Op& op = f_.op(id);
    std::vector<ir::Type> results;
    for (uint32_t i = 0; i < op.result_count; ++i) {
      if (plan_.is_scalar[op.first_result.index + i]) {
        results.push_back(f_.type_of(ValueId(op.first_result.index + i)));
      }
    }
    if (op.code == Opcode::kIf) {
      ops_[id.index] = builder_.BeginIf(Condition(id, op), results, op.source);
      EmitRegion(op.body);
      builder_.Else();
      EmitRegion(op.otherwise);
    } else {
      const ir::Region& body = f_.region(op.body);
      ops_[id.index] =
          builder_.BeginBlock(op.code, Scalars(body.first_param, body.param_count, op, 0), results, op.source);
      Bind(body.first_param, body.param_count, builder_.Params(ops_[id.index]));
      EmitRegion(op.body);
    }
    builder_.End();
    out_.op(ops_[id.index]).origin = OriginOf(op);
    Bind(op.first_result, op.result_count, builder_.Results(ops_[id.index]));
  }
  // Ways are numbered: of an if, 0 is its first region.
  ValueId Condition(OpId id, const Op& op) {
    const ValueId way = ways_[id.index];
    if (!way.valid()) {
      return Value(f_.operands_of(op)[0]);
    }
    return op.code == Opcode::kIf ? builder_.Append1({.code = Opcode::kEqz}, std::array{way}, ir::Type::kI32) : way;
  }

  std::vector<ValueId> ScalarsTo(const Target& target, const Op& from, uint32_t first_operand) {
    const Op& owner = f_.op(target.op);
    const ir::Region& body = f_.region(owner.body);
    return target.is_continue ? Scalars(body.first_param, body.param_count, from, first_operand)
                              : Scalars(owner.first_result, owner.result_count, from, first_operand);
  }
  void EmitEnd(OpId id) {
    const Op& op = f_.op(id);
    switch (op.code) {
      case Opcode::kReturn:
        return builder_.Return({}, op.source);
      case Opcode::kTrap:
        builder_.Trap(static_cast<ir::TrapCode>(op.imm), op.source);
        out_.ops.back().origin = OriginOf(op);
        return;
      case Opcode::kLeaveTable: {
        std::vector<Target> targets;
        for (const Target& target : f_.targets_of(op)) {
          targets.push_back({ops_[target.op.index], target.is_continue});
        }
        const ValueId way = Condition(id, op);
        return builder_.LeaveTable(way, targets, ScalarsTo(f_.targets_of(op)[0], op, 1), op.source);
      }
      default:
        return Jump(f_.targets_of(op)[0], op);
    }
  }
  void Jump(const Target& target, const Op& from) {
    const std::vector<ValueId> values = ScalarsTo(target, from, from.code == Opcode::kLeaveTable ? 1 : 0);
    if (target.is_continue) {
      builder_.Continue(ops_[target.op.index], values, from.source);
    } else {
      builder_.Leave(ops_[target.op.index], values, from.source);
    }
  }

  // Every jump of a tail brings the same scalars, so any one tells them.
  void EmitTailEnd(RegionId region, const GroupTarget& target) {
    if (!target.op.valid()) {
      return builder_.Return({});
    }
    const uint32_t segment = plan_.steps[region.index].back().segment;
    std::vector<OpId> work = plan_.segments[segment].ops;
    while (!work.empty()) {
      const Op& op = f_.op(work.back());
      work.pop_back();
      for (const Target& jump : f_.targets_of(op)) {
        if (jump.op == target.op && jump.is_continue == target.is_continue) {
          return Jump(jump, op);
        }
      }
      if (ir::OwnsRegions(op.code)) {
        work.insert(work.end(), f_.region(op.body).ops.begin(), f_.region(op.body).ops.end());
      }
      if (op.code == Opcode::kIf) {
        work.insert(work.end(), f_.region(op.otherwise).ops.begin(), f_.region(op.otherwise).ops.end());
      }
    }
    Jump({target.op, target.is_continue}, Op{.code = Opcode::kLeave});  // Only through others, which bring nothing.
  }

  const ir::Module& module_;
  const Function& f_;
  const GroupPlan& plan_;
  const std::vector<SegmentCall>& calls_;
  Function out_;
  ir::Builder builder_;
  std::vector<ValueId> values_;  // By the entry's ValueId.
  std::vector<OpId> ops_;        // By the entry's OpId.
  std::vector<ValueId> ways_;    // By the entry's OpId of a checked branch.
};

}  // namespace

Function BuildDriver(const ir::Module& module, const Function& entry, const GroupPlan& plan,
                     const std::vector<SegmentCall>& calls) {
  return DriverBuilder(module, entry, plan, calls).Run();
}

}  // namespace hpvm
