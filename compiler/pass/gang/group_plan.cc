// SPDX-License-Identifier: Apache-2.0
// Method: the planner walks the regions at group level, and collects operations between barriers into intervals.
// Scalars are found optimistically: every passed value is a scalar until a contradiction is found. The values to
// keep across intervals are a minimum cut by bytes between values that cannot be recomputed and their uses in other
// intervals.
// Invariants: assumed scalars are only removed, so the fixed point is the largest set without a contradiction.
// Operations of an interval are of one region and in order. A kept value is made in an interval (checked).
// After 64 rounds no passed value counts as a scalar. Above 4096 nodes all needed values are kept; kernels of more
// than 8192 operations are refused.
// Source: Moses et al., PPoPP 2023 (see group_plan.h); min_cut.h.
#include "compiler/pass/gang/group_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "compiler/analysis/op_flow.h"
#include "compiler/analysis/uniformity.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/gang/group_outline.h"
#include "compiler/pass/gang/min_cut.h"

namespace hpvm::pass {
namespace {

using ir::Family;

// Finding tails examines a region's operations once for each of its constructs.
constexpr size_t kOpsMax = 8192;
// Above this number the planner keeps all needed values instead of computing the cheapest set.
constexpr size_t kCutNodesMax = 4096;
// Each round removes at least one value from the assumed scalars.
constexpr int kRoundsMax = 64;

bool IsArithmetic(Family family) {
  switch (family) {
    case Family::kConst:
    case Family::kIntUnary:
    case Family::kIntBinary:
    case Family::kIntCompare:
    case Family::kFloatUnary:
    case Family::kFloatBinary:
    case Family::kFloatCompare:
    case Family::kConvert:
    case Family::kSelect:
      return true;
    default:
      return false;
  }
}

// A value that a jump, or entry, brings to a parameter or result of a construct.
struct Incoming {
  ValueId slot, value;
};

// --- Values to keep.

class GroupPlanner {
 public:
  GroupPlanner(const ir::Function& f, const GroupOutline& outline, const analysis::FunctionUniformity& known)
      : f_(f), outline_(outline), known_(known), flow_(analysis::FindOpFlow(f)) {}

  StatusOr<GroupPlan> Run() {
    plan_.definition.assign(f_.values.size(), OpId());
    plan_.segment_of.assign(f_.values.size(), kNoSegment);
    plan_.is_passed.assign(f_.values.size(), false);
    plan_.steps.resize(f_.regions.size());
    plan_.tails.resize(f_.regions.size());
    CollectSlots();
    FindScalars();
    HPVMD_RETURN_IF_ERROR(CheckControl());
    HPVMD_RETURN_IF_ERROR(VisitRegion(f_.body));
    FindKept();
    for (size_t v = 0; v < f_.values.size(); ++v) {
      HPVMD_CHECK(!plan_.is_kept[v] || plan_.segment_of[v] != kNoSegment);
    }
    return std::move(plan_);
  }

 private:
  bool IsUniform(ValueId value) const { return known_.shapes[value.index].is_uniform(); }
  // Returns true if the operation, which is in a region at group level, belongs to the region's tail.
  bool IsTail(OpId op) const {
    const RegionId region = outline_.region_of(op);
    const auto& tail = outline_.tail(region);
    if (!tail.has_value()) {
      return false;
    }
    const std::vector<OpId>& ops = f_.region(region).ops;
    return std::find(ops.begin() + static_cast<ptrdiff_t>(tail->begin), ops.end(), op) != ops.end();
  }

  void CollectSlots() {
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      for (uint32_t i = 0; i < op.result_count; ++i) {
        plan_.definition[op.first_result.index + i] = id;
      }
      AddIncoming(op);
      if (!outline_.is_group()[id.index]) {
        if (op.code == Opcode::kBrTable && outline_.is_level(outline_.region_of(id)) && !IsTail(id)) {
          group_branches_.push_back(id);
        }
        return;
      }
      if (op.code == Opcode::kIf) {
        group_branches_.push_back(id);
      } else {
        const ir::Region& body = f_.region(op.body);
        for (uint32_t i = 0; i < body.param_count; ++i) {
          incoming_.push_back({ValueId(body.first_param.index + i), f_.operands_of(op)[i]});
          plan_.is_passed[body.first_param.index + i] = true;
        }
      }
      for (uint32_t i = 0; i < op.result_count; ++i) {
        plan_.is_passed[op.first_result.index + i] = true;
      }
    });
  }
  void AddIncoming(const Op& jump) {
    const uint32_t first = ir::FirstBrought(jump.code);
    for (const ir::Target& target : f_.targets_of(jump)) {
      const ir::Slots slots = ir::SlotsOf(f_, target);
      for (uint32_t i = 0; i < slots.count && outline_.is_group()[target.op.index]; ++i) {
        incoming_.push_back({slots[i], f_.operands_of(jump)[first + i]});
      }
    }
  }
  // Starts with every passed value as a scalar, unless its shape or a tail says otherwise; then removes
  // contradictions.
  void FindScalars() {
    plan_.is_scalar.assign(f_.values.size(), false);
    plan_.for_first.assign(f_.values.size(), false);
    const ir::Region& body = f_.region(f_.body);
    for (uint32_t i = 0; i < body.param_count; ++i) {
      plan_.is_scalar[body.first_param.index + i] = plan_.for_first[body.first_param.index + i] = true;
    }
    for (size_t v = 0; v < f_.values.size(); ++v) {
      if (plan_.is_passed[v] && IsUniform(ValueId(v))) {
        plan_.is_scalar[v] = plan_.for_first[v] = true;
      }
    }
    // The jumps of a tail are taken per instance: a value that they bring is a scalar only if all bring the same
    // value.
    std::map<uint32_t, ValueId> brought;
    for (size_t r = 0; r < f_.regions.size(); ++r) {
      const auto& tail = outline_.tail(RegionId(r));
      if (!tail.has_value()) {
        continue;
      }
      const std::vector<OpId>& ops = f_.regions[r].ops;
      brought.clear();
      const size_t before = incoming_.size();
      for (size_t i = tail->begin; i < ops.size(); ++i) {
        ir::ForEachOpOf(f_, ops[i], [&](OpId id) { AddIncoming(f_.op(id)); });
      }
      for (size_t i = before; i < incoming_.size(); ++i) {
        const Incoming& in = incoming_[i];
        if (brought.emplace(in.slot.index, in.value).first->second != in.value) {
          plan_.is_scalar[in.slot.index] = plan_.for_first[in.slot.index] = false;
        }
      }
      incoming_.resize(before);
    }
    for (int round = 0; round < kRoundsMax; ++round) {
      if (!Evaluate()) {
        return;
      }
    }
    for (size_t v = 0; v < f_.values.size(); ++v) {
      if (plan_.is_passed[v]) {
        plan_.is_scalar[v] = plan_.for_first[v] = false;
      }
    }
    Evaluate();
  }
  // Walks the operations once, given the passed scalars; returns true if any passed value turned out not to be a
  // scalar.
  bool Evaluate() {
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      if (outline_.is_group()[id.index] || ir::OwnsRegions(op.code)) {
        return;
      }
      const bool for_first = IsForFirst(id, op);
      for (const ValueId result : ir::ResultsOf(op)) {
        plan_.for_first[result.index] = for_first;
        plan_.is_scalar[result.index] = for_first && IsUniform(result);
      }
    });
    bool changed = false;
    auto drop = [&](ValueId slot) {
      changed |= plan_.is_scalar[slot.index];
      plan_.is_scalar[slot.index] = plan_.for_first[slot.index] = false;
    };
    for (const Incoming& in : incoming_) {
      if (!plan_.is_scalar[in.value.index]) {
        drop(in.slot);
      }
    }
    return changed;
  }
  // Returns true if group level can execute the operation for the group's first instance, given its operands.
  bool IsForFirst(OpId id, const Op& op) const {
    if (op.code == Opcode::kConst) {
      return true;
    }
    if (!outline_.is_level(outline_.region_of(id)) || ir::OwnsRegions(op.code)) {
      return false;
    }
    if (op.code == Opcode::kGlobalGet) {
      return IsUniform(op.first_result);
    }
    bool all_first = true, all_scalar = true;
    for (ValueId operand : f_.operands_of(op)) {
      all_first = all_first && plan_.for_first[operand.index];
      all_scalar = all_scalar && plan_.is_scalar[operand.index];
    }
    const ir::OpcodeInfo& info = ir::Info(op.code);
    if (op.code == Opcode::kLocalAlloc) {
      return all_scalar;
    }
    if (info.effects == ir::kPure) {
      return all_first;
    }
    // Executing it once for the group suffices to trap.
    return IsArithmetic(info.family) && all_scalar && !IsTail(id);
  }
  Status CheckControl() {
    for (OpId id : group_branches_) {
      const Op& op = f_.op(id);
      if (!plan_.is_scalar[f_.operands_of(op)[0].index]) {
        HPVMD_RETURN_IF_ERROR(CheckBranch(id));
      }
      if (op.code != Opcode::kBrTable || op.operand_count == 1) {
        continue;
      }
      // One list of values goes to all targets: each must be a scalar for all of them, or go to a single target.
      bool is_one_target = true, all_scalars = true;
      for (const ir::Target& target : f_.targets_of(op)) {
        const ir::Target& first = f_.targets_of(op)[0];
        is_one_target = is_one_target && target.op == first.op && target.is_continue == first.is_continue;
        const ir::Slots slots = ir::SlotsOf(f_, target);
        for (uint32_t i = 0; i < slots.count; ++i) {
          all_scalars = all_scalars && plan_.is_scalar[slots[i].index];
        }
      }
      if (!is_one_target && !all_scalars) {
        return Unimplemented("The br_table at byte " + std::to_string(op.source) +
                             " passes values that differ between instances to several targets between barriers.");
      }
    }
    return absl::OkStatus();
  }
  Status CheckBranch(OpId id) {
    const std::vector<OpId>& ways = flow_.next[id.index];
    std::set<uint32_t> all;
    size_t count = 0;
    for (OpId way : ways) {
      const std::set<uint32_t> first = FirstSyncs(way);
      count += first.size();
      all.insert(first.begin(), first.end());
    }
    if (all.size() != count) {
      return Unimplemented("A branch at byte " + std::to_string(f_.op(id).source) +
                           " decides which barrier comes next, and may differ within a group without a trap.");
    }
    return absl::OkStatus();
  }
  // Returns the barriers that may come next after `from`; kNoSegment represents the end.
  std::set<uint32_t> FirstSyncs(OpId from) const {
    std::set<uint32_t> found;
    analysis::FollowFlow(flow_.next, {from}, [&](OpId id) {
      const Opcode code = f_.op(id).code;
      if (code == Opcode::kBarrier || code == Opcode::kReturn) {
        found.insert(code == Opcode::kBarrier ? id.index : kNoSegment);
      }
      return code != Opcode::kBarrier;
    });
    return found;
  }

  Status VisitRegion(RegionId region) {
    const std::vector<OpId>& ops = f_.region(region).ops;
    const auto& tail = outline_.tail(region);
    for (size_t i = 0; i < ops.size(); ++i) {
      if (tail.has_value() && i == tail->begin) {
        AddTail(region);
        break;
      }
      const Op& op = f_.op(ops[i]);
      if (outline_.is_group()[ops[i].index]) {
        HPVMD_RETURN_IF_ERROR(VisitConstruct(ops[i]));
      } else if (op.code == Opcode::kBarrier) {
        Flush(region);
      } else if (ir::IsTerminator(op.code)) {
        HPVMD_RETURN_IF_ERROR(VisitEnd(ops[i]));
      } else if (IsScalarStep(ops[i])) {
        if (op.code == Opcode::kLocalAlloc && !plan_.is_scalar[op.first_result.index]) {
          return Unimplemented("The size of the local_alloc at byte " + std::to_string(op.source) +
                               " may differ between the instances of a group.");
        }
        if (ir::Info(op.code).effects != ir::kPure && PendingHasEffects()) {
          Flush(region);
        }
        plan_.steps[region.index].push_back({GroupStep::Kind::kScalar, 0, ops[i]});
      } else {
        if (IsForGroup(ops[i])) {
          plan_.steps[region.index].push_back({GroupStep::Kind::kScalar, 0, ops[i]});  // Scalars may use it.
        }
        Pending().ops.push_back(ops[i]);
      }
    }
    return absl::OkStatus();
  }
  Status VisitConstruct(OpId id) {
    const Op& op = f_.op(id);
    const RegionId region = outline_.region_of(id);
    if (op.code == Opcode::kIf) {
      if (!plan_.is_scalar[f_.operands_of(op)[0].index]) {
        Pending().checked = id;
      }
    } else {
      Pass(ir::ParamsOf(f_.region(op.body)), op);
    }
    Flush(region);
    plan_.steps[region.index].push_back({GroupStep::Kind::kConstruct, 0, id});
    HPVMD_RETURN_IF_ERROR(VisitRegion(op.body));
    return op.code == Opcode::kIf ? VisitRegion(op.otherwise) : absl::OkStatus();
  }
  Status VisitEnd(OpId id) {
    const Op& op = f_.op(id);
    const RegionId region = outline_.region_of(id);
    if (op.target_count != 0) {
      Pass(ir::SlotsOf(f_, f_.targets_of(op)[0]), op);
    }
    if (op.code == Opcode::kBrTable && !plan_.is_scalar[f_.operands_of(op)[0].index]) {
      Pending().checked = id;
    }
    Flush(region);
    plan_.steps[region.index].push_back({GroupStep::Kind::kEnd, 0, id});
    return absl::OkStatus();
  }
  bool IsScalarStep(OpId id) const {
    const Op& op = f_.op(id);
    if (op.code == Opcode::kLocalAlloc) {
      return true;
    }
    return op.result_count == 1 && !ir::OwnsRegions(op.code) && plan_.is_scalar[op.first_result.index];
  }
  // Returns true if group level computes the operation, at least for its first instance.
  bool IsForGroup(OpId id) const {
    const Op& op = f_.op(id);
    return op.result_count == 1 && !ir::OwnsRegions(op.code) && plan_.for_first[op.first_result.index];
  }
  void AddTail(RegionId region) {
    const auto& tail = outline_.tail(region);
    const std::vector<OpId>& ops = f_.region(region).ops;
    IntervalPlan& interval = Pending();
    interval.is_tail = true;
    interval.tail_target = tail->target;
    for (size_t i = tail->begin; i < ops.size(); ++i) {
      if (IsForGroup(ops[i])) {
        plan_.steps[region.index].push_back({GroupStep::Kind::kScalar, 0, ops[i]});
      }
      if (!IsScalarStep(ops[i])) {
        interval.ops.push_back(ops[i]);
      }
    }
    plan_.tails[region.index] = tail->target;
    Flush(region);
  }
  // Adds the values that instances take into a construct, or out of it.
  void Pass(const ir::Slots& slots, const Op& from) {
    for (uint32_t i = 0; i < slots.count; ++i) {
      const ValueId value = f_.operands_of(from)[ir::FirstBrought(from.code) + i];
      if (!plan_.is_scalar[slots[i].index] && slots[i] != value) {
        Pending().passes.push_back({slots[i], value});
      }
    }
  }
  IntervalPlan& Pending() {
    if (!pending_.has_value()) {
      pending_.emplace();
    }
    return *pending_;
  }
  void Flush(RegionId region) {
    if (!pending_.has_value()) {
      return;
    }
    plan_.steps[region.index].push_back(
        {GroupStep::Kind::kSegment, static_cast<uint32_t>(plan_.intervals.size()), OpId()});
    plan_.intervals.push_back(*std::move(pending_));
    pending_.reset();
  }
  bool PendingHasEffects() const {
    if (!pending_.has_value()) {
      return false;
    }
    return std::ranges::any_of(pending_->ops, [&](OpId id) { return ir::Info(f_.op(id).code).effects != ir::kPure; });
  }

  void FindKept() {
    NoteSegments();
    NoteNeeds(FindNeeds());
  }
  void NoteSegments() {
    for (uint32_t s = 0; s < plan_.intervals.size(); ++s) {
      for (OpId top : plan_.intervals[s].ops) {
        const auto note = [&](const ir::Slots& slots) {
          for (uint32_t i = 0; i < slots.count; ++i) {
            plan_.segment_of[slots[i].index] = s;
          }
        };
        ir::ForEachOpOf(f_, top, [&](OpId id) {
          const Op& op = f_.op(id);
          note(ir::ResultsOf(op));
          if (ir::OwnsRegions(op.code)) {
            note(ir::ParamsOf(f_.region(op.body)));
          }
        });
      }
    }
  }
  void NoteNeeds(const std::vector<std::vector<ValueId>>& needs) {
    plan_.is_kept.assign(f_.values.size(), false);
    CutGraph graph;
    std::map<uint32_t, uint32_t> node_of;
    std::vector<ValueId> values;
    auto node = [&](ValueId value) {
      const auto [at, is_new] = node_of.emplace(value.index, static_cast<uint32_t>(values.size()));
      if (is_new) {
        values.push_back(value);
        graph.costs.push_back(ir::Bytes(f_.type_of(value)));
      }
      return at->second;
    };
    for (const auto& list : needs) {
      for (ValueId value : list) {
        if (std::ranges::find(graph.sinks, node(value)) == graph.sinks.end()) {
          graph.sinks.push_back(node(value));
        }
      }
    }
    for (size_t i = 0; i < values.size() && i <= kCutNodesMax; ++i) {
      const auto at = static_cast<uint32_t>(i);
      if (!CanRemake(values[i])) {
        graph.sources.push_back(at);
        continue;
      }
      for (ValueId operand : f_.operands_of(f_.op(plan_.definition[values[i].index]))) {
        if (!IsFree(operand)) {
          graph.edges.push_back({node(operand), at});
        }
      }
    }
    if (values.size() > kCutNodesMax) {
      for (uint32_t at : graph.sinks) {
        plan_.is_kept[values[at].index] = true;
      }
      return;
    }
    const std::vector<bool> is_cut = MinCut(graph);  // Free values (IsFree) are not in the graph.
    for (size_t i = 0; i < values.size(); ++i) {
      plan_.is_kept[values[i].index] = is_cut[i];
    }
  }
  // Returns, by interval, the values of other intervals that it reads.
  std::vector<std::vector<ValueId>> FindNeeds() const {
    std::vector<std::vector<ValueId>> needs(plan_.intervals.size());
    for (uint32_t s = 0; s < plan_.intervals.size(); ++s) {
      const IntervalPlan& interval = plan_.intervals[s];
      auto need = [&](ValueId value) {
        if (plan_.segment_of[value.index] != s && !IsFree(value)) {
          needs[s].push_back(value);
        }
      };
      for (OpId top : interval.ops) {
        ir::ForEachOpOf(f_, top, [&](OpId id) { std::ranges::for_each(f_.operands_of(f_.op(id)), need); });
      }
      for (const auto& [slot, value] : interval.passes) {
        need(value);
      }
      if (interval.checked.valid()) {
        need(f_.operands_of(f_.op(interval.checked))[0]);
      }
    }
    return needs;
  }
  // Returns true for values that are available everywhere at no cost.
  bool IsFree(ValueId value) const {
    const OpId definition = plan_.definition[value.index];
    return plan_.is_scalar[value.index] || plan_.is_passed[value.index] ||
           (definition.valid() && f_.op(definition).code == Opcode::kConst);
  }
  bool CanRemake(ValueId value) const {
    const OpId definition = plan_.definition[value.index];
    return definition.valid() && IsCheapAndPure(f_.op(definition));
  }

  const ir::Function& f_;
  const GroupOutline& outline_;
  const analysis::FunctionUniformity& known_;
  const analysis::OpFlow flow_;
  GroupPlan plan_;
  std::vector<Incoming> incoming_;
  std::vector<OpId> group_branches_;
  std::optional<IntervalPlan> pending_;
};

// Returns true if the entry has a call, and another function waits for other instances or allocates group memory.
bool CallsSync(const ir::Module& module, const ir::Function& entry) {
  bool found = false, has_sync = false;
  for (size_t i = 0; i < module.functions.size(); ++i) {
    if (&module.functions[i] != &entry) {
      ir::ForEachOp(module.functions[i],
                    [&](OpId id) { has_sync = has_sync || IsSync(module.functions[i].op(id).code); });
    }
  }
  ir::ForEachOp(entry, [&](OpId id) {
    found = found || entry.op(id).code == Opcode::kCall || entry.op(id).code == Opcode::kCallRef;
  });
  return found && has_sync;
}

}  // namespace

bool IsCheapAndPure(const Op& op) {
  switch (op.code) {
    case Opcode::kFDiv:
    case Opcode::kFSqrt:
      return false;
    default:
      return ir::Info(op.code).effects == ir::kPure && op.result_count == 1;
  }
}

StatusOr<GroupPlan> PlanGroup(const ir::Module& module) {
  const ir::Function& entry = module.function(module.entry);
  if (entry.ops.size() > kOpsMax) {
    return Unimplemented("The kernel has more operations (" + std::to_string(entry.ops.size()) +
                         ") than a kernel with barriers may have to be split (" + std::to_string(kOpsMax) + ").");
  }
  if (CallsSync(module, entry)) {
    return Unimplemented("A function that is called but not inlined may have a barrier or local_alloc.");
  }
  const GroupOutline outline(entry);
  std::vector<bool> assumed = outline.is_group();
  ir::ForEachOp(entry, [&](OpId id) {
    const RegionId region = outline.region_of(id);
    if (entry.op(id).code == Opcode::kBrTable && outline.is_level(region) && !outline.tail(region).has_value()) {
      assumed[id.index] = true;
    }
  });
  const std::optional<analysis::Uniformity> known =
      analysis::AnalyseUniformity(module, analysis::Lanes::kSurelyGroup, &assumed);
  if (!known.has_value()) {
    return Unimplemented("The analysis of which values a group's instances share did not end within its limits.");
  }
  return GroupPlanner(entry, outline, known->functions[module.entry.index]).Run();
}

}  // namespace hpvm::pass
