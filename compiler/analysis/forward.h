// SPDX-License-Identifier: Apache-2.0
// A forward data-flow analysis over a function's structured control flow that joins facts about values at merge
// points.
#ifndef HPVMD_COMPILER_ANALYSIS_FORWARD_H_
#define HPVMD_COMPILER_ANALYSIS_FORWARD_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/analysis/words.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {

// A Domain provides `using Fact`, whose default value means "nothing seen yet"; `bool Join(Fact& into, const Fact&
// from, int sweep)`, which returns true if `into` changed; and `void Transfer(const ir::Op&, ForwardSweep&)` for
// operations that do not merge, which gives their results facts through Set. The sweep also calls BeginSweep(),
// EnterRegion(RegionId), Jump(const Op&) at a terminator, and Leave(OpId) after a block, loop or if. Loop parameters
// for which `bool IsBounded(OpId, uint32_t)` returns true take the fact of `Fact LoopParam(OpId, uint32_t, const
// ForwardSweep&)` at loop entry, whatever facts the back edges carry.
template <typename Domain>
class ForwardSweep {
 public:
  using Fact = typename Domain::Fact;

  ForwardSweep(const ir::Function& function, Domain& domain)
      : function_(function), domain_(domain), facts_(function.values.size()) {}

  const Fact& At(ir::ValueId value) const { return facts_[value.index]; }
  const Fact& At(const ir::Op& op, uint32_t operand) const { return At(function_.operands_of(op)[operand]); }
  void Set(ir::ValueId value, const Fact& fact) { changed_ |= domain_.Join(facts_[value.index], fact, sweep_); }
  // Records that state other than a value's fact changed, so another sweep is needed.
  void Touch() { changed_ = true; }
  int sweep() const { return sweep_; }

  // Returns false if the facts did not reach a fixed point within `sweeps_max` sweeps.
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
      const ir::OpId id = region.ops[next++];
      const ir::Op& op = function_.op(id);
      Visit(id);
      if (ir::OwnsRegions(op.code)) {
        enter(op.body);
      }
    }
  }

  void Visit(ir::OpId id) {
    const ir::Op& op = function_.op(id);
    if (ir::IsTerminator(op.code)) {
      domain_.Jump(op);
      for (const ir::Target& target : function_.targets_of(op)) {
        const ir::Slots slots = ir::SlotsOf(function_, target);
        for (uint32_t i = 0; i < slots.count; ++i) {
          if (!target.is_continue || !domain_.IsBounded(target.op, i)) {
            Set(slots[i], At(op, ir::FirstBrought(op.code) + i));
          }
        }
      }
    } else if (op.code == ir::Opcode::kBlock || op.code == ir::Opcode::kLoop) {
      const ir::Slots slots = ir::ParamsOf(function_.region(op.body));
      for (uint32_t i = 0; i < slots.count; ++i) {
        const bool is_bounded = op.code == ir::Opcode::kLoop && domain_.IsBounded(id, i);
        Set(slots[i], is_bounded ? domain_.LoopParam(id, i, *this) : At(op, i));
      }
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

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_FORWARD_H_
