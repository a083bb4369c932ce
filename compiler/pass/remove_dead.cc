// SPDX-License-Identifier: Apache-2.0
// Method: a slot (a value that control flow passes) to which every edge brings one value is replaced by that value,
// in rounds of alternating direction. A work list then marks what operations with effects and branches need, and a
// copy keeps only that.
// Invariants: a replacement is visible wherever its slot was. It is the end of its own chain when it is chosen, and
// never the slot itself, so chains end. Slots that a table brings are pinned and kept.
// Eight rounds at most, each linear apart from the chains; further replacements are left undone. A value enters the
// work list once.
#include "compiler/pass/remove_dead.h"

#include <span>
#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/nesting.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/cut_unreachable.h"
#include "compiler/pass/rewrite/copy_function.h"

namespace hpvm::pass {
namespace {

using ir::OwnsRegions;

// A replacement enables others; further replacements after this number of rounds are skipped. Each round is linear.
constexpr int kRoundsMax = 8;

// A Slot is a value passed by control flow: a loop's or block's parameter, or the result of a block, loop or if. All
// other values have `kNoSlot`.
constexpr uint32_t kNoSlot = 0xffffffffu;
struct Slot {
  ValueId value;
  RegionId home;                 // The region that contains the owner; a replacement must be visible in it.
  std::vector<ValueId> sources;  // The value of each edge.
  bool is_pinned = false;        // A table brings it: all its targets take the same list, so none can drop a value.
};

// Analysis finds the values of a function to keep, and replacements for other values.
class Analysis {
 public:
  explicit Analysis(const ir::Function& function) : f_(function) {
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
  void CollectSlots() {
    slot_of_.resize(f_.values.size(), kNoSlot);
    const auto add = [&](const ir::Slots& slots, RegionId home) {
      for (uint32_t i = 0; i < slots.count; ++i) {
        slot_of_[slots[i].index] = static_cast<uint32_t>(slots_.size());
        slots_.push_back({slots[i], home, {}});
      }
    };
    for (const OpId id : nesting_.order()) {
      const Op& op = f_.op(id);
      if (OwnsRegions(op.code)) {
        add(ir::ResultsOf(op), nesting_.RegionOf(id));
        add(ir::ParamsOf(f_.region(op.body)), nesting_.RegionOf(id));
      }
    }
    for (const OpId id : nesting_.order()) {
      const Op& op = f_.op(id);
      ir::ForEachBrought(f_, op, [&](ValueId slot, ValueId value) {
        slots_[slot_of_[slot.index]].sources.push_back(value);
        slots_[slot_of_[slot.index]].is_pinned |= op.code == Opcode::kBrTable;
      });
    }
  }
  // Alternates between both directions, because values travel both into blocks and out of them.
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
  // Replaces a slot to which every edge brings the same value, or the slot itself, by that value, if it is visible
  // outside.
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
    if (!only.valid() || !nesting_.Encloses(HomeOf(only), slot.home)) {
      return false;
    }
    replacement_[slot.value.index] = only;
    return true;
  }
  // Returns the outermost region in which the value is visible.
  RegionId HomeOf(ValueId value) const {
    const OpId maker = nesting_.MakerOf(value);
    return !maker.valid() ? f_.body : definitions_.Of(value).valid() ? nesting_.RegionOf(maker) : f_.op(maker).body;
  }
  void MarkLive() {
    live_.resize(f_.values.size());
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      const bool passes = op.code == Opcode::kBr || op.code == Opcode::kContinue || op.code == Opcode::kBrTable;
      if (op.code == Opcode::kIf || op.code == Opcode::kBrTable) {
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
      } else if (const Op* op = definitions_.OpOf(value)) {
        for (ValueId operand : f_.operands_of(*op)) {
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
  const analysis::Definitions definitions_{f_};
  const analysis::Nesting nesting_{f_};
  std::vector<uint32_t> slot_of_;  // Indexed by ValueId.
  std::vector<Slot> slots_;
  std::vector<ValueId> replacement_;  // Indexed by ValueId.
  std::vector<bool> live_;            // Indexed by ValueId.
  std::vector<ValueId> work_;
};

// Copy rebuilds the function from the operations and values that are kept.
class Copy final : public FunctionCopier {
 public:
  Copy(const ir::Function& from, const Analysis& analysis) : FunctionCopier(from), analysis_(analysis) {}

  ir::Function Run() && {
    CopyAll();
    return std::move(to_);
  }

 private:
  ValueId At(ValueId value) override { return values_[analysis_.Final(value).index]; }
  bool IsKept(ValueId slot) const override { return analysis_.IsKept(slot); }
  void CopyOp(OpId id) override {
    if (analysis_.IsKept(f_.op(id))) {
      FunctionCopier::CopyOp(id);
    }
  }

  const Analysis& analysis_;
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

}  // namespace hpvm::pass
