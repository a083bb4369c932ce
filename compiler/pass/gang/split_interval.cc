// SPDX-License-Identifier: Apache-2.0
// Builds an interval's functions: one instance's work in it, and a stub for the loop over a group.
// Method: the interval's operations are copied into a function. A value that it does not make is repeated if it is
// a constant, passed if it is a scalar, loaded if the instance keeps it, and otherwise computed again from its
// operands.
// Invariants: outside_ has operands before results and each value once, so what is brought in is defined before its
// use. All values are read before the first place is written, because passes may exchange two of them. All jumps
// out of a tail leave one block around it.
// Every value is examined once, and each of its operands once more.
#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/gang/split_build.h"
#include "compiler/pass/rewrite/copy_function.h"

namespace hpvm::pass {
namespace {

using ir::Function;
using ir::Target;

class IntervalBuilder final : public FunctionCopier {
 public:
  IntervalBuilder(const ir::Module& module, const Function& f, const GroupPlan& plan, const GroupFrame& places,
                  uint32_t number)
      : FunctionCopier(f),
        module_(module),
        plan_(plan),
        places_(places),
        number_(number),
        interval_(plan.intervals[number]),
        is_found_(f.values.size()) {}

  IntervalFunctions Run() {
    FindStores();
    out_.has_effects = !stores_.empty() || interval_.checked.valid() || interval_.is_tail || HasEffects();
    if (!out_.has_effects) {
      return std::move(out_);
    }
    FindOutside();
    Begin();
    for (ValueId value : outside_) {
      Bring(value);
    }
    if (interval_.is_tail) {
      EmitTail();
    } else {
      for (OpId id : interval_.ops) {
        CopyOp(id);
      }
    }
    EmitStores();
    b_.Return({});
    BuildLoop();
    out_.original.resize(to_.ops.size());
    out_.gang = std::move(to_);
    return std::move(out_);
  }

 private:
  // Visits backwards: values that the first operations use are brought in last, immediately before them.
  template <typename Visit>
  void ForEachInner(Visit visit) const {
    for (OpId top : interval_.ops | std::views::reverse) {
      ir::ForEachOpOf(f_, top, [&](OpId id) { visit(f_.op(id)); });
    }
  }

  bool HasEffects() const {
    bool has = false;
    ForEachInner([&](const Op& op) { has = has || (ir::Info(op.code).effects & ~ir::kControl) != 0; });
    return has;
  }
  bool IsConstant(ValueId value) const {
    return plan_.definition[value.index].valid() && f_.op(plan_.definition[value.index]).code == Opcode::kConst;
  }
  bool IsPlaced(ValueId value) const { return places_.of[value.index] != kNotKept; }

  // Finds values made here that have a place, and values passed to places.
  void FindStores() {
    for (const auto& [slot, value] : interval_.passes) {
      if (IsPlaced(slot)) {
        stores_.push_back({slot, value});
      }
    }
    for (OpId id : interval_.ops) {
      const Op& op = f_.op(id);
      for (const ValueId result : ir::ResultsOf(op)) {
        if (plan_.is_kept[result.index]) {
          stores_.push_back({result, result});
        }
      }
    }
    if (interval_.is_tail && interval_.tail_target.op.valid()) {
      const ir::Slots slots = TailSlots();
      for (uint32_t i = 0; i < slots.count; ++i) {
        if (IsPlaced(slots[i])) {
          tail_stores_.push_back({slots[i], i});
        }
      }
    }
  }
  ir::Slots TailSlots() const { return ir::SlotsOf(f_, {interval_.tail_target.op, interval_.tail_target.is_continue}); }

  // Finds the values that the interval reads but does not make, operands before results.
  void FindOutside() {
    ForEachInner([&](const Op& op) {
      for (ValueId operand : f_.operands_of(op)) {
        Need(operand);
      }
      NoteQuery(op);
    });
    for (const auto& [slot, value] : stores_) {
      Need(value);
    }
    if (interval_.checked.valid()) {
      Need(f_.operands_of(f_.op(interval_.checked))[0]);
    }
  }
  void Need(ValueId root) {
    std::vector<std::pair<ValueId, bool>> work{{root, false}};
    while (!work.empty()) {
      const auto [value, are_operands_done] = work.back();
      work.pop_back();
      if (are_operands_done) {
        outside_.push_back(value);
        continue;
      }
      if (plan_.segment_of[value.index] == number_ || is_found_[value.index]) {
        continue;
      }
      is_found_[value.index] = true;
      work.push_back({value, true});
      if (!IsConstant(value) && !plan_.is_scalar[value.index] && !IsPlaced(value)) {
        const Op& op = f_.op(plan_.definition[value.index]);
        NoteQuery(op);
        for (ValueId operand : f_.operands_of(op)) {
          work.push_back({operand, false});
        }
      } else if (!IsConstant(value) && plan_.is_scalar[value.index]) {
        AddArgument({value, Opcode::kInstanceId, 0, f_.type_of(value)});
      }
    }
  }

  // local_id and group_id of a constant dimension are computed from the driver's arguments.
  bool Rewrites(const Op& op, IntervalArgument* argument) const {
    if (op.code != Opcode::kLocalId && op.code != Opcode::kGroupId) {
      return false;
    }
    const ValueId operand = f_.operands_of(op)[0];
    if (!IsConstant(operand)) {
      return false;
    }
    const uint64_t dimension = f_.op(plan_.definition[operand.index]).imm;
    *argument = {ValueId(), op.code == Opcode::kLocalId ? Opcode::kInstanceId : Opcode::kGroupId,
                 static_cast<uint32_t>(dimension), f_.type_of(op.first_result)};
    return dimension < 3;
  }
  void NoteQuery(const Op& op) {
    if (IntervalArgument argument; Rewrites(op, &argument)) {
      AddArgument(argument);
    }
  }
  void AddArgument(const IntervalArgument& argument) {
    if (std::ranges::find(out_.arguments, argument) == out_.arguments.end()) {
      out_.arguments.push_back(argument);
    }
  }
  ValueId ArgumentOf(const IntervalArgument& argument) const {
    const auto at = std::ranges::find(out_.arguments, argument);
    return params_[static_cast<size_t>(at - out_.arguments.begin())];
  }

  void Begin() {
    to_.name = f_.name + ".segment" + std::to_string(number_);
    to_.type = {};
    for (const IntervalArgument& argument : out_.arguments) {
      to_.type.params.push_back(argument.type);
    }
    to_.type.params.push_back(module_.address_type());
    const std::span<const ValueId> params = b_.BeginBody();
    params_.assign(params.begin(), params.end());
  }

  ValueId Add(Op op, std::vector<ValueId> operands, ir::Type result, const Op& like) {
    op.source = like.source;
    op.origin = OriginOf(like);
    return b_.Append1(op, operands, result);
  }

  void Bring(ValueId value) {
    if (values_[value.index].valid()) {
      return;
    }
    const ir::Type type = f_.type_of(value);
    if (IsConstant(value)) {
      values_[value.index] = b_.Const(type, f_.op(plan_.definition[value.index]).imm);
    } else if (plan_.is_scalar[value.index]) {
      values_[value.index] = ArgumentOf({value, Opcode::kInstanceId, 0, type});
    } else if (IsPlaced(value)) {
      Op load{.code = Opcode::kLoad,
              .type = type,
              .space = ir::Space::kPrivate,
              .width = static_cast<uint8_t>(ir::Bytes(type)),
              .imm = places_.of[value.index]};
      values_[value.index] = b_.Append1(load, std::array{params_.back()}, type);
    } else {
      CopyOp(plan_.definition[value.index]);
    }
  }

  void Store(uint32_t place, ValueId value, ir::Type type) {
    Op store{.code = Opcode::kStore,
             .type = type,
             .space = ir::Space::kPrivate,
             .width = static_cast<uint8_t>(ir::Bytes(type)),
             .imm = place};
    b_.Append(store, std::array{params_.back(), value}, {});
  }
  void EmitStores() {
    // All values are read before the first is written, because passing may exchange two values.
    for (const auto& [slot, value] : stores_) {
      Store(places_.of[slot.index], values_[value.index], f_.type_of(slot));
    }
    if (interval_.checked.valid()) {
      const Op& branch = f_.op(interval_.checked);
      Store(places_.check, WayOf(branch, values_[f_.operands_of(branch)[0].index]), ir::Type::kI32);
    }
  }
  // Returns the number of the branch that an instance takes: 0 or 1 for an if, the target's index for a table.
  ValueId WayOf(const Op& branch, ValueId condition) {
    Op op{.code = Opcode::kEqz};
    if (branch.code == Opcode::kIf) {
      return Add(op, {condition}, ir::Type::kI32, branch);
    }
    const ValueId last = b_.Const(ir::Type::kI32, branch.target_count - 1);
    op.code = Opcode::kLtU;
    const ValueId is_below = Add(op, {condition, last}, ir::Type::kI32, branch);
    op.code = Opcode::kSelect;
    return Add(op, {is_below, condition, last}, ir::Type::kI32, branch);
  }

  // All jumps out of a tail have the same target: they leave a block around it.
  void EmitTail() {
    std::vector<ir::Type> results;
    if (interval_.tail_target.op.valid()) {
      const ir::Slots slots = TailSlots();
      for (uint32_t i = 0; i < slots.count; ++i) {
        results.push_back(f_.type_of(slots[i]));
      }
    }
    tail_block_ = b_.BeginBlock(Opcode::kBlock, {}, results);
    for (OpId id : interval_.ops) {
      CopyOp(id);
    }
    b_.End();
    const std::vector<ValueId> left = b_.Results(tail_block_);
    for (const auto& [slot, index] : tail_stores_) {
      Store(places_.of[slot.index], left[index], f_.type_of(slot));
    }
  }

  uint32_t OriginOf(const Op& op) const override { return op.origin != 0 ? op.origin : module_.entry.index + 1; }
  // A jump out of the tail becomes a jump out of the block around it.
  Target TargetOf(const Target& old) const override {
    return ops_[old.op.index].valid() ? FunctionCopier::TargetOf(old) : Target{tail_block_, false};
  }
  void CopyReturn(const Op& op) override { b_.Leave(tail_block_, {}, op.source); }
  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    IntervalArgument argument;
    if (!Rewrites(op, &argument)) {
      FunctionCopier::CopyOp(id);
      if (!ir::OwnsRegions(op.code) && !ir::IsTerminator(op.code)) {
        out_.original.resize(to_.ops.size());
        out_.original.back() = id;
      }
      return;
    }
    ValueId value = ArgumentOf(argument);
    if (op.code == Opcode::kLocalId) {
      Op query{.code = Opcode::kInstanceId, .type = op.type};
      const ValueId own = Add(query, {values_[f_.operands_of(op)[0].index]}, argument.type, op);
      Op difference{.code = Opcode::kSub, .type = argument.type};
      value = Add(difference, {own, value}, argument.type, op);
    }
    values_[op.first_result.index] = value;
  }

  void BuildLoop() {
    out_.loop.name = to_.name + ".loop";
    out_.loop.type.params.assign(to_.type.params.begin(), to_.type.params.end() - 1);
    if (interval_.checked.valid()) {
      out_.loop.type.results = {ir::Type::kI32};
    }
    ir::Builder stub(out_.loop);
    stub.BeginBody();
    stub.Trap(ir::TrapCode::kUnreachable);
  }

  const ir::Module& module_;
  const GroupPlan& plan_;
  const GroupFrame& places_;
  const uint32_t number_;
  const IntervalPlan& interval_;
  IntervalFunctions out_;
  std::vector<bool> is_found_;  // Indexed by ValueId: true if in outside_, or about to be added.
  std::vector<ValueId> outside_, params_;
  std::vector<std::pair<ValueId, ValueId>> stores_;        // Slot with the place, and value.
  std::vector<std::pair<ValueId, uint32_t>> tail_stores_;  // Slot with the place, and result index of tail_block_.
  OpId tail_block_;
};

}  // namespace

IntervalFunctions BuildInterval(const ir::Module& module, const Function& entry, const GroupPlan& plan,
                                const GroupFrame& places, uint32_t interval) {
  return IntervalBuilder(module, entry, plan, places, interval).Run();
}

}  // namespace hpvm::pass
