// SPDX-License-Identifier: Apache-2.0
// Sweeps over a function's structured control that join facts of values where control merges.
#ifndef HPVMD_COMPILER_ANALYSIS_FORWARD_H_
#define HPVMD_COMPILER_ANALYSIS_FORWARD_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/ir/spelling.h"

namespace hpvm {

// What happens on the way, for domains that follow more than values.
struct NoHooks {
  void BeginSweep() {}
  void EnterRegion(ir::RegionId) {}
  void Jump(const ir::Op&) {}  // A terminator.
  void Leave(ir::OpId) {}      // Behind a block, loop or if.
};

// Domain, besides the hooks: `using Fact`, whose default is "nothing seen yet"; `bool Join(Fact& into, const Fact&
// from, int sweep)`, whether `into` changed; `void Transfer(const ir::Op&, ForwardSweep&)` for operations that do not
// merge, which gives their results facts through Set.
template <typename Domain>
class ForwardSweep {
 public:
  using Fact = typename Domain::Fact;

  ForwardSweep(const ir::Function& function, Domain& domain)
      : function_(function), domain_(domain), facts_(function.values.size()) {}

  const Fact& At(const ir::Op& op, uint32_t operand) const { return facts_[function_.operands_of(op)[operand].index]; }
  void Set(ir::ValueId value, const Fact& fact) { changed_ |= domain_.Join(facts_[value.index], fact, sweep_); }
  // Something else than a value's fact changed: another sweep is needed.
  void Touch() { changed_ = true; }
  int sweep() const { return sweep_; }

  // False when it did not settle within `sweeps_max` sweeps.
  bool Run(int sweeps_max) {
    for (sweep_ = 0; sweep_ < sweeps_max; ++sweep_) {
      changed_ = false;
      domain_.BeginSweep();
      Walk();
      if (!changed_) {
        return true;
      }
    }
    return false;
  }
  std::vector<Fact> Take() { return std::move(facts_); }

 private:
  void Walk() {
    std::vector<std::pair<ir::RegionId, size_t>> open;
    const auto enter = [&](ir::RegionId region) {
      domain_.EnterRegion(region);
      open.push_back({region, 0});
    };
    enter(function_.body);
    while (!open.empty()) {
      auto& [region_id, next] = open.back();
      const ir::Region& region = function_.region(region_id);
      if (next == region.ops.size()) {
        const ir::RegionId ended = region_id;
        open.pop_back();
        if (!region.owner.valid()) {
          return;
        }
        const ir::Op& owner = function_.op(region.owner);
        if (owner.code == ir::Opcode::kIf && ended == owner.body) {
          enter(owner.otherwise);
        } else {
          domain_.Leave(region.owner);
        }
        continue;
      }
      const ir::Op& op = function_.op(region.ops[next++]);
      Visit(op);
      if (ir::OwnsRegions(op.code)) {
        enter(op.body);
      }
    }
  }

  void SetAll(ir::ValueId first, uint32_t count, const ir::Op& op, uint32_t first_operand) {
    for (uint32_t i = 0; i < count; ++i) {
      Set(ir::ValueId(first.index + i), At(op, first_operand + i));
    }
  }

  void Jump(const ir::Op& op, uint32_t first_operand) {
    for (const ir::Target& target : function_.targets_of(op)) {
      const ir::Op& owner = function_.op(target.op);
      if (target.is_continue) {
        const ir::Region& body = function_.region(owner.body);
        SetAll(body.first_param, body.param_count, op, first_operand);
      } else {
        SetAll(owner.first_result, owner.result_count, op, first_operand);
      }
    }
  }

  void Visit(const ir::Op& op) {
    if (ir::IsTerminator(op.code)) {
      domain_.Jump(op);
      if (op.code != ir::Opcode::kReturn && op.code != ir::Opcode::kTrap) {
        Jump(op, op.code == ir::Opcode::kLeaveTable ? 1 : 0);
      }
    } else if (op.code == ir::Opcode::kBlock || op.code == ir::Opcode::kLoop) {
      const ir::Region& body = function_.region(op.body);
      SetAll(body.first_param, body.param_count, op, 0);
    } else if (op.code != ir::Opcode::kIf) {
      domain_.Transfer(op, *this);
    }
  }

  const ir::Function& function_;
  Domain& domain_;
  std::vector<Fact> facts_;
  int sweep_ = 0;
  bool changed_ = false;
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_ANALYSIS_FORWARD_H_
