// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/verify/verify.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/verify/verify_module.h"
#include "compiler/ir/verify/verify_op.h"

namespace hpvm::ir {
namespace {

// Checks F1 to F5, then O1 to O6 for each operation, except the types of O6.
class FunctionVerifier {
 public:
  FunctionVerifier(const Module& module, FunctionId id, Diagnostics& out)
      : m_(module),
        f_(module.function(id)),
        out_(out),
        place_("function f" + std::to_string(id.index) + " \"" + f_.name + '"') {}

  void Verify() {
    // Each step relies on the steps before it.
    if (CheckIds() && CheckTree()) {
      Walk();
    }
  }

 private:
  struct Open {
    RegionId region;
    size_t next = 0;
    size_t values_before = 0;  // Size of defined_order_ when the region was opened.
  };

  bool CheckIds() {
    for (const Op& op : f_.ops) {
      if (static_cast<size_t>(op.code) > static_cast<size_t>(Opcode::kTrap)) {
        return Fail("An operation's code does not exist.");
      }
      if (!IsInRange(op.first_operand, op.operand_count, f_.operands.size()) ||
          !IsInRange(op.first_target, op.target_count, f_.targets.size()) ||
          (op.result_count > 0 && !IsInRange(op.first_result.index, op.result_count, f_.values.size()))) {
        return Fail("An operation's operands, targets or results are out of range.", op.source);
      }
      if (op.origin > m_.functions.size()) {
        return Fail("An operation was written in function " + std::to_string(op.origin - 1) + ", which does not exist.",
                    op.source);
      }
      const size_t region_count = f_.regions.size();
      if ((OwnsRegions(op.code) && op.body.index >= region_count) ||
          (op.code == Opcode::kIf && op.otherwise.index >= region_count)) {
        return Fail("An operation's region is out of range.", op.source);
      }
    }
    for (const ValueId value : f_.operands) {
      if (value.index >= f_.values.size()) {
        return Fail("An operand is out of range.");
      }
    }
    for (const Target& target : f_.targets) {
      if (target.op.index >= f_.ops.size()) {
        return Fail("A target is out of range.");
      }
    }
    for (const Region& region : f_.regions) {
      if (region.param_count > 0 && !IsInRange(region.first_param.index, region.param_count, f_.values.size())) {
        return Fail("A region's parameters are out of range.");
      }
      for (const OpId op : region.ops) {
        if (op.index >= f_.ops.size()) {
          return Fail("An operation of a region is out of range.");
        }
      }
    }
    return f_.body.index < f_.regions.size() || Fail("The function has no body.");
  }
  bool CheckTree() {
    std::vector<bool> owned(f_.regions.size());
    std::vector<bool> placed(f_.ops.size());
    if (!Own(f_.body, OpId(), owned)) {
      return false;
    }
    // Operations outside all regions own nothing.
    for (const Region& region : f_.regions) {
      for (const OpId id : region.ops) {
        const Op& op = f_.op(id);
        if (placed[id.index]) {
          return Fail("An operation stands in two places.", op.source);
        }
        placed[id.index] = true;
        if ((OwnsRegions(op.code) && !Own(op.body, id, owned)) ||
            (op.code == Opcode::kIf && !Own(op.otherwise, id, owned))) {
          return false;
        }
      }
    }
    // Each region has one owner and the body has none, so the regions that the walk reaches from the body form a
    // tree.
    return true;
  }
  bool CheckTargetIds(const Op& op) {
    for (const Target& target : f_.targets_of(op)) {
      if (!is_open_[target.op.index]) {
        return Fail("A target does not enclose its terminator.", op.source);
      }
    }
    return true;
  }
  bool Own(RegionId region, OpId owner, std::vector<bool>& owned) {
    if (owned[region.index]) {
      return Fail("A region is owned twice.");
    }
    owned[region.index] = true;
    return f_.region(region).owner == owner || Fail("A region's owner is not the operation that owns it.");
  }
  void Walk() {
    is_open_.resize(f_.ops.size());
    is_defined_.resize(f_.values.size());
    is_visible_.resize(f_.values.size());
    if (f_.types_of(ParamsOf(f_.region(f_.body))) != f_.type.params) {
      Fail("The types of the body's parameters differ from those of the function type.");
    }
    OpenRegion(f_.body);
    while (!open_.empty()) {
      Open& top = open_.back();
      const Region& region = f_.region(top.region);
      if (top.next == region.ops.size()) {
        CloseRegion();
        continue;
      }
      const OpId id = region.ops[top.next++];
      CheckOp(id, top.next == region.ops.size());
      const Op& op = f_.op(id);
      if (op.code == Opcode::kBrTable) {
        CountTable(op);
      }
      if (!OwnsRegions(op.code)) {
        Define(op.first_result, op.result_count);
      } else if (open_.size() >= kRegionDepthMax) {
        Fail("Regions nest deeper than the limit (" + std::to_string(kRegionDepthMax) + ").", op.source);
        return;
      } else {
        OpenRegion(op.body);
      }
    }
  }
  void OpenRegion(RegionId id) {
    const Region& region = f_.region(id);
    open_.push_back({id, 0, defined_order_.size()});
    if (region.owner.valid()) {
      is_open_[region.owner.index] = true;
    }
    Define(region.first_param, region.param_count);
    if (region.ops.empty()) {
      Fail("A region is empty.", region.owner.valid() ? f_.op(region.owner).source : 0);
    }
  }
  void CloseRegion() {
    const Open closed = open_.back();
    open_.pop_back();
    for (size_t i = closed.values_before; i < defined_order_.size(); ++i) {
      is_visible_[defined_order_[i].index] = false;
    }
    defined_order_.resize(closed.values_before);
    const OpId owner = f_.region(closed.region).owner;
    if (!owner.valid()) {
      return;
    }
    is_open_[owner.index] = false;
    const Op& op = f_.op(owner);
    if (op.code == Opcode::kIf && op.body == closed.region) {
      OpenRegion(op.otherwise);
    } else {
      Define(op.first_result, op.result_count);
    }
  }
  void CheckOp(OpId id, bool is_last) {
    const Op& op = f_.op(id);
    const std::string name = '"' + std::string(Info(op.code).text) + "\": ";
    if (IsTerminator(op.code) != is_last) {
      Fail(name + (is_last ? "A region ends in an operation that is not a terminator."
                           : "A terminator stands before the end of its region."),
           op.source);
    }
    for (const ValueId operand : f_.operands_of(op)) {
      if (!is_visible_[operand.index]) {
        Fail(name + "An operand is used outside the region that defines it, or before its definition.", op.source);
        return;
      }
    }
    if (!CheckTargetIds(op)) {
      return;
    }
    const OpContext context{m_, f_, op};
    std::string fault;
    switch (Info(op.code).family) {
      case Family::kMemory:
      case Family::kAtomic:
      case Family::kGlobal:
        fault = CheckMemory(context);
        break;
      case Family::kQuery:
      case Family::kSync:
        fault = CheckQueryOrSync(context);
        break;
      case Family::kCall:
      case Family::kControl:
        fault = CheckControl(context);
        break;
      default:
        fault = CheckArithmetic(context);
    }
    if (!fault.empty()) {
      Fail(name + fault, op.source);
    }
  }
  void CountTable(const Op& op) {
    std::vector<std::pair<OpId, bool>> targets;
    for (const Target& target : f_.targets_of(op)) {
      targets.emplace_back(target.op, target.is_continue);
    }
    std::ranges::sort(targets);
    const size_t distinct = static_cast<size_t>(std::unique(targets.begin(), targets.end()) - targets.begin());
    const uint64_t limit = 4096 + kTableValuesPerValue * f_.values.size();
    const uint64_t before = table_values_;
    table_values_ += uint64_t{op.operand_count} * distinct;
    if (before <= limit && table_values_ > limit) {
      Fail("The function's tables pass more values (" + std::to_string(table_values_) + ") than the limit (" +
               std::to_string(limit) + ").",
           op.source);
    }
  }
  void Define(ValueId first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const ValueId value(first.index + i);
      if (is_defined_[value.index]) {
        Fail("A value is defined twice.");
      }
      is_defined_[value.index] = true;
      is_visible_[value.index] = true;
      defined_order_.push_back(value);
    }
  }
  bool Fail(std::string message, uint32_t source = 0) {
    ReportFault(out_, place_, std::move(message), source);
    return false;
  }

  const Module& m_;
  const Function& f_;
  Diagnostics& out_;
  std::string place_;
  std::vector<Open> open_;
  std::vector<bool> is_open_;     // True for a block, loop or if whose region is being walked.
  std::vector<bool> is_defined_;  // True for values defined so far.
  std::vector<bool> is_visible_;  // True for values visible now.
  std::vector<ValueId> defined_order_;
  uint64_t table_values_ = 0;  // For O5.
};

}  // namespace

Diagnostics Verify(const Module& module) {
  Diagnostics out;
  VerifyModule(module, out);
  for (uint32_t i = 0; i < module.functions.size(); ++i) {
    FunctionVerifier(module, FunctionId(i), out).Verify();
  }
  if (out.empty()) {
    VerifyUses(module, out);
  }
  return out;
}

}  // namespace hpvm::ir
