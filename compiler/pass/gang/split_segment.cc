// SPDX-License-Identifier: Apache-2.0
// A segment as functions: what one instance does in it, and a stub for the loop over a group.
#include <algorithm>
#include <array>
#include <utility>

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

class SegmentBuilder {
 public:
  SegmentBuilder(const ir::Module& module, const Function& f, const GroupPlan& plan, const GroupPlaces& places,
                 uint32_t number)
      : module_(module),
        f_(f),
        plan_(plan),
        places_(places),
        number_(number),
        segment_(plan.segments[number]),
        builder_(out_.gang),
        values_(f.values.size()),
        ops_(f.ops.size()),
        is_found_(f.values.size()) {}

  SegmentFunctions Run() {
    FindStores();
    out_.has_effects = !stores_.empty() || segment_.checked.valid() || segment_.is_tail || HasEffects();
    if (!out_.has_effects) {
      return std::move(out_);
    }
    FindOutside();
    Begin();
    for (ValueId value : outside_) {
      Bring(value);
    }
    if (segment_.is_tail) {
      EmitTail();
    } else {
      for (OpId id : segment_.ops) {
        Clone(id);
      }
    }
    EmitStores();
    builder_.Return({});
    BuildLoop();
    out_.original.resize(out_.gang.ops.size());
    return std::move(out_);
  }

 private:
  template <typename Visit>
  void ForEachInner(Visit visit) const {
    std::vector<OpId> work = segment_.ops;
    while (!work.empty()) {
      const OpId id = work.back();
      work.pop_back();
      const Op& op = f_.op(id);
      visit(op);
      if (ir::OwnsRegions(op.code)) {
        work.insert(work.end(), f_.region(op.body).ops.begin(), f_.region(op.body).ops.end());
      }
      if (op.code == Opcode::kIf) {
        work.insert(work.end(), f_.region(op.otherwise).ops.begin(), f_.region(op.otherwise).ops.end());
      }
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
  bool IsPlaced(ValueId value) const { return places_.of[value.index] != kNoPlace; }

  // Values made here that have a place, and what is passed to places.
  void FindStores() {
    for (const auto& [slot, value] : segment_.passes) {
      if (IsPlaced(slot)) {
        stores_.push_back({slot, value});
      }
    }
    for (OpId id : segment_.ops) {
      const Op& op = f_.op(id);
      for (uint32_t i = 0; i < op.result_count; ++i) {
        const ValueId result(op.first_result.index + i);
        if (plan_.is_kept[result.index]) {
          stores_.push_back({result, result});
        }
      }
    }
    if (segment_.is_tail && segment_.tail_target.op.valid()) {
      const auto [first, count] = TailSlots();
      for (uint32_t i = 0; i < count; ++i) {
        if (const ValueId slot(first.index + i); IsPlaced(slot)) {
          tail_stores_.push_back({slot, i});
        }
      }
    }
  }
  std::pair<ValueId, uint32_t> TailSlots() const {
    const Op& owner = f_.op(segment_.tail_target.op);
    const ir::Region& body = f_.region(owner.body);
    return segment_.tail_target.is_continue ? std::pair(body.first_param, body.param_count)
                                            : std::pair(owner.first_result, owner.result_count);
  }

  // What the segment reads and does not make, operands before what is made of them.
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
    if (segment_.checked.valid()) {
      Need(f_.operands_of(f_.op(segment_.checked))[0]);
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

  // local_id and group_id of a known dimension are made of what the driver passes.
  bool Rewrites(const Op& op, SegmentArgument* argument) const {
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
    if (SegmentArgument argument; Rewrites(op, &argument)) {
      AddArgument(argument);
    }
  }
  void AddArgument(const SegmentArgument& argument) {
    if (std::find(out_.arguments.begin(), out_.arguments.end(), argument) == out_.arguments.end()) {
      out_.arguments.push_back(argument);
    }
  }
  ValueId ArgumentOf(const SegmentArgument& argument) const {
    const auto at = std::find(out_.arguments.begin(), out_.arguments.end(), argument);
    return params_[static_cast<size_t>(at - out_.arguments.begin())];
  }

  void Begin() {
    out_.gang.name = f_.name + ".segment" + std::to_string(number_);
    for (const SegmentArgument& argument : out_.arguments) {
      out_.gang.type.params.push_back(argument.type);
    }
    out_.gang.type.params.push_back(module_.address_type());
    const std::span<const ValueId> params = builder_.BeginBody();
    params_.assign(params.begin(), params.end());
  }

  ValueId Add(Op op, std::vector<ValueId> operands, ir::Type result, const Op& like) {
    op.source = like.source;
    op.origin = OriginOf(like);
    return builder_.Append1(op, operands, result);
  }
  uint32_t OriginOf(const Op& op) const { return op.origin != 0 ? op.origin : module_.entry.index + 1; }

  void Bring(ValueId value) {
    if (values_[value.index].valid()) {
      return;
    }
    const ir::Type type = f_.type_of(value);
    if (IsConstant(value)) {
      values_[value.index] = builder_.Const(type, f_.op(plan_.definition[value.index]).imm);
    } else if (plan_.is_scalar[value.index]) {
      values_[value.index] = ArgumentOf({value, Opcode::kInstanceId, 0, type});
    } else if (IsPlaced(value)) {
      Op load{.code = Opcode::kLoad};
      load.type = type;
      load.space = ir::Space::kPrivate;
      load.width = static_cast<uint8_t>(ir::Bytes(type));
      load.imm = places_.of[value.index];
      values_[value.index] = builder_.Append1(load, std::array{params_.back()}, type);
    } else {
      ClonePlain(plan_.definition[value.index]);
    }
  }

  void Store(uint32_t place, ValueId value, ir::Type type) {
    Op store{.code = Opcode::kStore};
    store.type = type;
    store.space = ir::Space::kPrivate;
    store.width = static_cast<uint8_t>(ir::Bytes(type));
    store.imm = place;
    builder_.Append(store, std::array{params_.back(), value}, {});
  }
  void EmitStores() {
    // All are read before the first is written: passing may exchange two.
    for (const auto& [slot, value] : stores_) {
      Store(places_.of[slot.index], values_[value.index], f_.type_of(slot));
    }
    if (segment_.checked.valid()) {
      const Op& branch = f_.op(segment_.checked);
      Store(places_.check, WayOf(branch, values_[f_.operands_of(branch)[0].index]), ir::Type::kI32);
    }
  }
  // The number of the way that an instance takes: of an if 0 or 1, of a table the target's.
  ValueId WayOf(const Op& branch, ValueId condition) {
    Op op{.code = Opcode::kEqz};
    if (branch.code == Opcode::kIf) {
      return Add(op, {condition}, ir::Type::kI32, branch);
    }
    const ValueId last = builder_.Const(ir::Type::kI32, branch.target_count - 1);
    op.code = Opcode::kLtU;
    const ValueId is_below = Add(op, {condition, last}, ir::Type::kI32, branch);
    op.code = Opcode::kSelect;
    return Add(op, {is_below, condition, last}, ir::Type::kI32, branch);
  }

  // All jumps out of a tail go to one place: they leave a block around it.
  void EmitTail() {
    std::vector<ir::Type> results;
    if (segment_.tail_target.op.valid()) {
      const auto [first, count] = TailSlots();
      for (uint32_t i = 0; i < count; ++i) {
        results.push_back(f_.type_of(ValueId(first.index + i)));
      }
    }
    tail_block_ = builder_.BeginBlock(Opcode::kBlock, {}, results);
    for (OpId id : segment_.ops) {
      Clone(id);
    }
    builder_.End();
    const std::vector<ValueId> left = builder_.Results(tail_block_);
    for (const auto& [slot, index] : tail_stores_) {
      Store(places_.of[slot.index], left[index], f_.type_of(slot));
    }
  }

  void Clone(OpId id) {
    const Op& op = f_.op(id);
    if (ir::OwnsRegions(op.code)) {
      CloneConstruct(id);
    } else if (ir::IsTerminator(op.code)) {
      CloneJump(op);
    } else {
      ClonePlain(id);
    }
  }
  void CloneRegion(RegionId region) {
    for (OpId id : f_.region(region).ops) {
      Clone(id);
    }
  }
  std::vector<ValueId> Mapped(const Op& op, uint32_t first = 0) const {
    std::vector<ValueId> mapped;
    for (ValueId operand : f_.operands_of(op).subspan(first)) {
      mapped.push_back(values_[operand.index]);
    }
    return mapped;
  }
  std::vector<ir::Type> ResultTypes(const Op& op) const {
    std::vector<ir::Type> types;
    for (uint32_t i = 0; i < op.result_count; ++i) {
      types.push_back(f_.type_of(ValueId(op.first_result.index + i)));
    }
    return types;
  }
  void Bind(ValueId first, const std::vector<ValueId>& made) {
    for (size_t i = 0; i < made.size(); ++i) {
      values_[first.index + i] = made[i];
    }
  }

  void CloneConstruct(OpId id) {
    const Op& op = f_.op(id);
    if (op.code == Opcode::kIf) {
      ops_[id.index] = builder_.BeginIf(values_[f_.operands_of(op)[0].index], ResultTypes(op), op.source);
      CloneRegion(op.body);
      builder_.Else();
      CloneRegion(op.otherwise);
    } else {
      ops_[id.index] = builder_.BeginBlock(op.code, Mapped(op), ResultTypes(op), op.source);
      Bind(f_.region(op.body).first_param, builder_.Params(ops_[id.index]));
      CloneRegion(op.body);
    }
    builder_.End();
    out_.gang.op(ops_[id.index]).origin = OriginOf(op);
    Bind(op.first_result, builder_.Results(ops_[id.index]));
  }

  void CloneJump(const Op& op) {
    std::vector<Target> targets;
    for (const Target& target : f_.targets_of(op)) {
      const OpId inner = ops_[target.op.index];
      targets.push_back(inner.valid() ? Target{inner, target.is_continue} : Target{tail_block_, false});
    }
    if (op.code == Opcode::kLeaveTable) {
      builder_.LeaveTable(values_[f_.operands_of(op)[0].index], targets, Mapped(op, 1), op.source);
    } else if (op.code == Opcode::kTrap) {
      builder_.Trap(static_cast<ir::TrapCode>(op.imm), op.source);
    } else if (op.code == Opcode::kReturn) {
      builder_.Leave(tail_block_, {}, op.source);
    } else if (targets[0].is_continue) {
      builder_.Continue(targets[0].op, Mapped(op), op.source);
    } else {
      builder_.Leave(targets[0].op, Mapped(op), op.source);
    }
    out_.gang.ops.back().origin = OriginOf(op);
  }

  void ClonePlain(OpId id) {
    const Op& op = f_.op(id);
    if (SegmentArgument argument; Rewrites(op, &argument)) {
      ValueId value = ArgumentOf(argument);
      if (op.code == Opcode::kLocalId) {
        Op query{.code = Opcode::kInstanceId};
        query.type = op.type;
        const ValueId own = Add(query, {values_[f_.operands_of(op)[0].index]}, argument.type, op);
        Op difference{.code = Opcode::kSub};
        difference.type = argument.type;
        value = Add(difference, {own, value}, argument.type, op);
      }
      values_[op.first_result.index] = value;
      return;
    }
    Op copy = op;
    copy.origin = OriginOf(op);
    const OpId made = builder_.Append(copy, Mapped(op), ResultTypes(op));
    out_.original.resize(made.index + 1);
    out_.original[made.index] = id;
    Bind(op.first_result, builder_.Results(made));
  }

  void BuildLoop() {
    out_.loop.name = out_.gang.name + ".loop";
    out_.loop.type.params.assign(out_.gang.type.params.begin(), out_.gang.type.params.end() - 1);
    if (segment_.checked.valid()) {
      out_.loop.type.results = {ir::Type::kI32};
    }
    ir::Builder stub(out_.loop);
    stub.BeginBody();
    stub.Trap(ir::TrapCode::kUnreachable);
  }

  const ir::Module& module_;
  const Function& f_;
  const GroupPlan& plan_;
  const GroupPlaces& places_;
  const uint32_t number_;
  const SegmentPlan& segment_;
  SegmentFunctions out_;
  ir::Builder builder_;
  std::vector<ValueId> values_;  // By the entry's ValueId: the gang's.
  std::vector<OpId> ops_;        // By the entry's OpId of what owns regions.
  std::vector<bool> is_found_;   // By ValueId: in outside_, or about to be.
  std::vector<ValueId> outside_, params_;
  std::vector<std::pair<ValueId, ValueId>> stores_;        // Whose place, what.
  std::vector<std::pair<ValueId, uint32_t>> tail_stores_;  // Whose place, which result of the tail's block.
  OpId tail_block_;
};

}  // namespace

SegmentFunctions BuildSegment(const ir::Module& module, const Function& entry, const GroupPlan& plan,
                              const GroupPlaces& places, uint32_t segment) {
  return SegmentBuilder(module, entry, plan, places, segment).Run();
}

}  // namespace hpvm
