// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/remove_dead.h"

#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/spelling.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/cut_unreachable.h"

namespace hpvm {
namespace {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::OwnsRegions;
using ir::RegionId;
using ir::Target;
using ir::ValueId;

uint32_t FirstPassed(const Op& op) { return op.code == Opcode::kLeaveTable ? 1 : 0; }

// Replacements make others possible; what is left after so many rounds is kept. Each is linear.
constexpr int kRoundsMax = 8;

// A value that control brings along: a loop's or block's parameter, or the result of a block, loop or if. All others
// are `kNoSlot`.
constexpr uint32_t kNoSlot = 0xffffffffu;
struct Slot {
  ValueId value;
  RegionId home;                 // The region in which the owner stands: what a replacement must be visible in.
  std::vector<ValueId> sources;  // What each edge brings.
  bool is_pinned = false;        // A table brings it: all its targets take the same list, so none can drop a value.
};

// Which values of a function are worth keeping, and what the others are replaced by.
class Analysis {
 public:
  explicit Analysis(const ir::Function& function) : f_(function) {
    Number();
    CollectSlots();
    FindReplacements();
    MarkLive();
  }

  ValueId Final(ValueId value) const {
    while (replacement_[value.index].valid()) {
      value = replacement_[value.index];
    }
    return value;
  }
  bool IsKept(ValueId slot) const { return live_[slot.index] && !replacement_[slot.index].valid(); }
  bool IsKept(const Op& op) const {
    if (OwnsRegions(op.code) || ir::Info(op.code).effects & ~ir::kReads) {
      return true;
    }
    for (uint32_t i = 0; i < op.result_count; ++i) {
      if (live_[op.first_result.index + i]) {
        return true;
      }
    }
    return false;
  }

 private:
  // Regions in the order of their text, with where each ends, and where each value is defined.
  void Number() {
    begin_.resize(f_.regions.size());
    end_.resize(f_.regions.size());
    op_region_.resize(f_.ops.size());
    value_region_.resize(f_.values.size());
    definition_.resize(f_.values.size());
    struct Open {
      RegionId region;
      size_t next = 0;
    };
    uint32_t clock = 0;
    std::vector<Open> open;
    const auto enter = [&](RegionId id) {
      begin_[id.index] = clock++;
      const ir::Region& region = f_.region(id);
      for (uint32_t i = 0; i < region.param_count; ++i) {
        value_region_[region.first_param.index + i] = id;
      }
      open.push_back({id});
    };
    enter(f_.body);
    while (!open.empty()) {
      const RegionId id = open.back().region;
      const ir::Region& region = f_.region(id);
      if (open.back().next == region.ops.size()) {
        end_[id.index] = clock++;
        open.pop_back();
        const Op* owner = region.owner.valid() ? &f_.op(region.owner) : nullptr;
        if (owner != nullptr && owner->code == Opcode::kIf && owner->body == id) {
          enter(owner->otherwise);
        }
        continue;
      }
      const OpId op_id = region.ops[open.back().next++];
      const Op& op = f_.op(op_id);
      op_region_[op_id.index] = id;
      for (uint32_t i = 0; i < op.result_count; ++i) {
        value_region_[op.first_result.index + i] = id;
        definition_[op.first_result.index + i] = op_id;
      }
      if (OwnsRegions(op.code)) {
        enter(op.body);
      }
    }
  }
  bool Encloses(RegionId outer, RegionId inner) const {
    return begin_[outer.index] <= begin_[inner.index] && end_[inner.index] <= end_[outer.index];
  }
  void AddSlots(ValueId first, uint32_t count, RegionId home) {
    for (uint32_t i = 0; i < count; ++i) {
      const ValueId value(first.index + i);
      slot_of_[value.index] = static_cast<uint32_t>(slots_.size());
      slots_.push_back({value, home, {}});
    }
  }
  void AddSources(ValueId first, uint32_t count, const Op& op, uint32_t first_operand) {
    for (uint32_t i = 0; i < count; ++i) {
      Slot& slot = slots_[slot_of_[first.index + i]];
      slot.sources.push_back(f_.operands_of(op)[first_operand + i]);
      slot.is_pinned |= op.code == Opcode::kLeaveTable;
    }
  }
  void CollectSlots() {
    slot_of_.resize(f_.values.size(), kNoSlot);
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      if (!OwnsRegions(op.code)) {
        return;
      }
      AddSlots(op.first_result, op.result_count, op_region_[id.index]);
      if (op.code != Opcode::kIf) {
        const ir::Region& body = f_.region(op.body);
        AddSlots(body.first_param, body.param_count, op_region_[id.index]);
        AddSources(body.first_param, body.param_count, op, 0);
      }
    });
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      for (const Target& target : f_.targets_of(op)) {
        const Op& owner = f_.op(target.op);
        if (target.is_continue) {
          const ir::Region& body = f_.region(owner.body);
          AddSources(body.first_param, body.param_count, op, FirstPassed(op));
        } else {
          AddSources(owner.first_result, owner.result_count, op, FirstPassed(op));
        }
      }
    });
  }
  // Up and down in turn, since values travel both into blocks and out of them.
  void FindReplacements() {
    replacement_.resize(f_.values.size());
    bool changed = true;
    for (int round = 0; changed && round < kRoundsMax; ++round) {
      changed = false;
      for (size_t i = 0; i < slots_.size(); ++i) {
        changed |= Replace(slots_[round % 2 == 0 ? i : slots_.size() - 1 - i]);
      }
    }
  }
  // A slot to which every edge brings one value, or the slot itself, is that value, if it can be seen outside.
  bool Replace(const Slot& slot) {
    if (slot.is_pinned || replacement_[slot.value.index].valid()) {
      return false;
    }
    ValueId only;
    for (ValueId source : slot.sources) {
      source = Final(source);
      if (source != slot.value && only.valid() && source != only) {
        return false;
      }
      only = source != slot.value ? source : only;
    }
    if (!only.valid() || !Encloses(value_region_[only.index], slot.home)) {
      return false;
    }
    replacement_[slot.value.index] = only;
    return true;
  }
  void MarkLive() {
    live_.resize(f_.values.size());
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      const bool passes = op.code == Opcode::kLeave || op.code == Opcode::kContinue || op.code == Opcode::kLeaveTable;
      if (op.code == Opcode::kIf || op.code == Opcode::kLeaveTable) {
        Need(f_.operands_of(op)[0]);
      } else if (!passes && !OwnsRegions(op.code) && (ir::Info(op.code).effects & ~ir::kReads) != 0) {
        for (ValueId operand : f_.operands_of(op)) {
          Need(operand);
        }
      }
    });
    for (const Slot& slot : slots_) {
      if (slot.is_pinned) {
        Need(slot.value);
      }
    }
    while (!work_.empty()) {
      const ValueId value = work_.back();
      work_.pop_back();
      if (slot_of_[value.index] != kNoSlot) {
        for (ValueId source : slots_[slot_of_[value.index]].sources) {
          Need(source);
        }
      } else if (definition_[value.index].valid()) {
        for (ValueId operand : f_.operands_of(f_.op(definition_[value.index]))) {
          Need(operand);
        }
      }
    }
  }
  void Need(ValueId value) {
    value = Final(value);
    if (!live_[value.index]) {
      live_[value.index] = true;
      work_.push_back(value);
    }
  }

  const ir::Function& f_;
  std::vector<uint32_t> begin_, end_;   // By RegionId.
  std::vector<RegionId> op_region_;     // By OpId.
  std::vector<RegionId> value_region_;  // By ValueId.
  std::vector<OpId> definition_;        // By ValueId; invalid for parameters.
  std::vector<uint32_t> slot_of_;       // By ValueId.
  std::vector<Slot> slots_;
  std::vector<ValueId> replacement_;  // By ValueId.
  std::vector<bool> live_;            // By ValueId.
  std::vector<ValueId> work_;
};

// Builds the function anew from what is kept.
class Copy {
 public:
  Copy(const ir::Function& from, const Analysis& analysis)
      : from_(from), analysis_(analysis), builder_(to_), values_(from.values.size()), ops_(from.ops.size()) {
    to_.name = from.name;
    to_.type = from.type;
    to_.fast_math = from.fast_math;
  }

  ir::Function Run() && {
    const std::span<const ValueId> params = builder_.BeginBody();
    for (size_t i = 0; i < params.size(); ++i) {
      values_[from_.region(from_.body).first_param.index + i] = params[i];
    }
    struct Open {
      RegionId region;
      size_t next = 0;
    };
    std::vector<Open> open{{from_.body}};
    while (!open.empty()) {
      const RegionId id = open.back().region;
      const ir::Region& region = from_.region(id);
      if (open.back().next == region.ops.size()) {
        open.pop_back();
        if (const RegionId otherwise = Close(region.owner, id); otherwise.valid()) {
          open.push_back({otherwise});
        }
        continue;
      }
      const OpId op = region.ops[open.back().next++];
      if (OwnsRegions(from_.op(op).code)) {
        Begin(op);
        open.push_back({from_.op(op).body});
      } else {
        Plain(op);
      }
    }
    return std::move(to_);
  }

 private:
  ValueId Map(ValueId value) const { return values_[analysis_.Final(value).index]; }
  // The operands from `first_operand` on whose slots, from `first` on, are kept.
  std::vector<ValueId> Passed(const Op& op, uint32_t first_operand, ValueId first, uint32_t count) const {
    std::vector<ValueId> values;
    for (uint32_t i = 0; i < count; ++i) {
      if (analysis_.IsKept(ValueId(first.index + i))) {
        values.push_back(Map(from_.operands_of(op)[first_operand + i]));
      }
    }
    return values;
  }
  void Bind(ValueId first, uint32_t count, std::span<const ValueId> made) {
    size_t next = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (analysis_.IsKept(ValueId(first.index + i))) {
        values_[first.index + i] = made[next++];
      }
    }
  }
  void Begin(OpId id) {
    const Op& op = from_.op(id);
    std::vector<ir::Type> results;
    for (uint32_t i = 0; i < op.result_count; ++i) {
      if (const ValueId result(op.first_result.index + i); analysis_.IsKept(result)) {
        results.push_back(from_.type_of(result));
      }
    }
    if (op.code == Opcode::kIf) {
      ops_[id.index] = builder_.BeginIf(Map(from_.operands_of(op)[0]), results, op.source);
    } else {
      const ir::Region& body = from_.region(op.body);
      ops_[id.index] =
          builder_.BeginBlock(op.code, Passed(op, 0, body.first_param, body.param_count), results, op.source);
      Bind(body.first_param, body.param_count, builder_.Params(ops_[id.index]));
    }
    to_.op(ops_[id.index]).origin = op.origin;
    Bind(op.first_result, op.result_count, builder_.Results(ops_[id.index]));
  }
  // Ends what has just been copied; the region to go on with, if the owner has another.
  RegionId Close(OpId owner, RegionId ended) {
    if (!owner.valid()) {
      return {};
    }
    const Op& op = from_.op(owner);
    if (op.code == Opcode::kIf && op.body == ended) {
      builder_.Else();
      return op.otherwise;
    }
    builder_.End();
    return {};
  }
  void Plain(OpId id) {
    const Op& op = from_.op(id);
    if (!analysis_.IsKept(op)) {
      return;
    }
    if (op.code == Opcode::kLeave || op.code == Opcode::kContinue || op.code == Opcode::kLeaveTable) {
      return Jump(op);
    }
    std::vector<ValueId> operands;
    for (ValueId operand : from_.operands_of(op)) {
      operands.push_back(Map(operand));
    }
    if (op.code == Opcode::kReturn) {
      return builder_.Return(operands, op.source);
    }
    if (op.code == Opcode::kTrap) {
      builder_.Trap(static_cast<ir::TrapCode>(op.imm), op.source);
      to_.ops.back().origin = op.origin;
      return;
    }
    std::vector<ir::Type> results;
    for (uint32_t i = 0; i < op.result_count; ++i) {
      results.push_back(from_.type_of(ValueId(op.first_result.index + i)));
    }
    const std::vector<ValueId> made = builder_.Results(builder_.Append(op, operands, results));
    for (uint32_t i = 0; i < op.result_count; ++i) {
      values_[op.first_result.index + i] = made[i];
    }
  }
  void Jump(const Op& op) {
    std::vector<Target> targets;
    std::vector<ValueId> values;
    for (const Target& target : from_.targets_of(op)) {
      const Op& owner = from_.op(target.op);
      const bool is_continue = target.is_continue;
      const ValueId first = is_continue ? from_.region(owner.body).first_param : owner.first_result;
      const uint32_t count = is_continue ? from_.region(owner.body).param_count : owner.result_count;
      values = Passed(op, FirstPassed(op), first, count);
      targets.push_back({ops_[target.op.index], is_continue});
    }
    if (op.code == Opcode::kLeaveTable) {
      builder_.LeaveTable(Map(from_.operands_of(op)[0]), targets, values, op.source);
    } else if (op.code == Opcode::kContinue) {
      builder_.Continue(targets[0].op, values, op.source);
    } else {
      builder_.Leave(targets[0].op, values, op.source);
    }
    to_.ops.back().origin = op.origin;
  }

  const ir::Function& from_;
  const Analysis& analysis_;
  ir::Function to_;
  ir::Builder builder_;
  std::vector<ValueId> values_;  // By old ValueId.
  std::vector<OpId> ops_;        // By old OpId of what owns regions.
};

}  // namespace

Status RemoveDead(ir::Module& module) {
  for (ir::Function& function : module.functions) {
    CutUnreachable(function);
    const Analysis analysis(function);
    function = Copy(function, analysis).Run();
  }
  return absl::OkStatus();
}

}  // namespace hpvm
