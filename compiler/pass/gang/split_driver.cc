// SPDX-License-Identifier: Apache-2.0
// Builds the driver, which runs once per group: control around barriers, scalars, and calls of the intervals' loops.
#include <algorithm>
#include <array>
#include <utility>

#include "compiler/ir/walk.h"
#include "compiler/pass/gang/split_build.h"
#include "compiler/pass/rewrite/copy_function.h"

namespace hpvm::pass {
namespace {

using ir::Function;
using ir::Target;

class DriverBuilder final : public FunctionCopier {
 public:
  DriverBuilder(const ir::Module& module, const Function& f, const GroupPlan& plan,
                const std::vector<IntervalCall>& calls)
      : FunctionCopier(f), module_(module), plan_(plan), calls_(calls), ways_(f.ops.size()) {}

  Function Run() {
    to_.name = f_.name + ".group";
    CopyAll();
    return std::move(to_);
  }

 private:
  // Jumps need no origin.
  uint32_t OriginOf(const Op& op) const override {
    const bool jumps = ir::IsTerminator(op.code) && op.code != Opcode::kTrap;
    return jumps ? 0 : op.origin != 0 ? op.origin : module_.entry.index + 1;
  }
  // Constants may be defined outside of group level.
  ValueId At(ValueId value) override {
    const OpId definition = plan_.definition[value.index];
    if (definition.valid() && f_.op(definition).code == Opcode::kConst) {
      return b_.Const(f_.type_of(value), f_.op(definition).imm);
    }
    HPVMD_CHECK(values_[value.index].valid());
    return values_[value.index];
  }
  bool IsKept(ValueId slot) const override { return plan_.is_scalar[slot.index]; }
  // Branches are numbered: 0 is the first region of an if.
  ValueId ConditionOf(OpId id) override {
    const ValueId way = ways_[id.index];
    if (!way.valid()) {
      return FunctionCopier::ConditionOf(id);
    }
    return f_.op(id).code == Opcode::kIf ? b_.Append1({.code = Opcode::kEqz}, std::array{way}, ir::Type::kI32) : way;
  }

  void CopyRegion(RegionId region) override {
    for (const GroupStep& step : plan_.steps[region.index]) {
      if (step.kind == GroupStep::Kind::kSegment) {
        EmitCall(step.interval);
      } else {
        CopyOp(step.op);
      }
    }
    if (plan_.tails[region.index].has_value()) {
      EmitTailEnd(region, *plan_.tails[region.index]);
    }
  }

  void EmitCall(uint32_t interval) {
    const IntervalCall& call = calls_[interval];
    if (!call.loop.valid()) {
      return;
    }
    std::vector<ValueId> operands;
    for (const IntervalArgument& argument : call.arguments) {
      if (argument.scalar.valid()) {
        operands.push_back(At(argument.scalar));
        continue;
      }
      Op query{.code = argument.query, .type = argument.type};
      const ValueId dimension = b_.Const(ir::Type::kI32, argument.dimension);
      operands.push_back(b_.Append1(query, std::array{dimension}, argument.type));
    }
    Op op{.code = Opcode::kCall, .imm = call.loop.index, .origin = module_.entry.index + 1};
    if (!call.is_checked) {
      b_.Append(op, operands, {});
      return;
    }
    ways_[plan_.intervals[interval].checked.index] = b_.Append1(op, operands, ir::Type::kI32);
  }

  // All jumps of a tail bring the same scalars, so any of them serves.
  void EmitTailEnd(RegionId region, const GroupTarget& target) {
    if (!target.op.valid()) {
      return b_.Return({});
    }
    Op jump{.code = Opcode::kBr};  // Remains if the jumps go through others, which bring no values.
    for (OpId top : plan_.intervals[plan_.steps[region.index].back().interval].ops) {
      ir::ForEachOpOf(f_, top, [&](OpId id) {
        const bool is_one = std::ranges::any_of(f_.targets_of(f_.op(id)), [&](const Target& to) {
          return to.op == target.op && to.is_continue == target.is_continue;
        });
        jump = is_one ? f_.op(id) : jump;
      });
    }
    const std::vector<ValueId> values = Brought(jump, ir::SlotsOf(f_, {target.op, target.is_continue}));
    if (target.is_continue) {
      b_.Continue(ops_[target.op.index], values, jump.source);
    } else {
      b_.Leave(ops_[target.op.index], values, jump.source);
    }
  }

  const ir::Module& module_;
  const GroupPlan& plan_;
  const std::vector<IntervalCall>& calls_;
  std::vector<ValueId> ways_;  // Indexed by the entry's OpId of a checked branch.
};

}  // namespace

Function BuildDriver(const ir::Module& module, const Function& entry, const GroupPlan& plan,
                     const std::vector<IntervalCall>& calls) {
  return DriverBuilder(module, entry, plan, calls).Run();
}

}  // namespace hpvm::pass
