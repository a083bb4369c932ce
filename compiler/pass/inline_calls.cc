// SPDX-License-Identifier: Apache-2.0
// Method: functions are processed callees first. A caller is copied, and a call that fits becomes a block with the
// callee's body, which the callee's returns leave.
// Invariants: a callee's body is final when it is copied, so nothing in it is inlined again. Recursive functions
// stay calls, so copying ends. With keeps_scratch_apart, a function that stores to scratch memory, or loads state
// and calls one that stores, stays a call.
// A call is inlined only while the caller's operations, its depth and the module's budget allow it; the budget
// never grows.
// Source: call_order.h (Tarjan) for the order.
#include "compiler/pass/inline_calls.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "compiler/analysis/nesting.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/call_order.h"
#include "compiler/pass/library_name.h"
#include "compiler/pass/rewrite/copy_function.h"

namespace hpvm::pass {
namespace {

using ir::FunctionId;

struct Size {
  uint32_t ops = 0, depth = 0;  // Number of operations, and maximum depth of nested regions.
};

Size SizeOf(const ir::Function& function) {
  const analysis::Nesting nesting(function);
  Size size{static_cast<uint32_t>(nesting.order().size()), 0};
  for (const OpId id : nesting.order()) {
    size.depth = std::max(size.depth, nesting.DepthOf(id) + 1);
  }
  return size;
}

// CalleeCopier copies a callee's body into its caller at the call's place, into a block that the callee's returns
// leave.
class CalleeCopier final : public FunctionCopier {
 public:
  CalleeCopier(const ir::Module& module, const Op& call, FunctionCopier& caller, OpId block)
      : FunctionCopier(module.functions[call.imm], caller), call_(call), block_(block) {}
  void Run(std::span<const ValueId> arguments) && {
    Bind(f_.region(f_.body).first_param, arguments);
    CopyRegion(f_.body);
  }

 private:
  // Operations written in the callee now belong to the caller.
  uint32_t OriginOf(const Op& op) const override {
    return op.origin != 0 ? op.origin : static_cast<uint32_t>(call_.imm) + 1;
  }
  void CopyReturn(const Op& op) override { b_.Leave(block_, Map(op), op.source); }
  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    if (op.code != Opcode::kTrap || !IsLibraryName(f_.name)) {
      return FunctionCopier::CopyOp(id);
    }
    // The author knows the call, not the place in the library that noticed the fault.
    b_.Trap(static_cast<ir::TrapCode>(op.imm), call_.source);
    to_.ops.back().origin = call_.origin;
  }

  const Op& call_;
  const OpId block_;
};

// Inliner copies a caller with the bodies of some of its callees. A callee's body needs no further inlining, because
// the callee has been processed before.
class Inliner final : public FunctionCopier {
 public:
  // `budget`: number of operations that may still be added to the module; decreases. `ops_max`: limit of the caller.
  Inliner(const ir::Module& module, FunctionId caller, const std::vector<bool>& may_inline,
          const std::vector<Size>& sizes, uint32_t ops_max, uint32_t& budget)
      : FunctionCopier(module.function(caller)),
        module_(module),
        ops_max_(ops_max),
        may_inline_(may_inline),
        sizes_(sizes),
        budget_(budget),
        size_(sizes[caller.index].ops) {}

  ir::Function Run() && {
    CopyAll();
    return std::move(to_);
  }

 private:
  void CopyRegion(RegionId region) override {
    ++depth_;
    FunctionCopier::CopyRegion(region);
    --depth_;
  }
  bool Inlines(const Op& op) const {
    if (op.code != Opcode::kCall || !may_inline_[op.imm]) {
      return false;
    }
    const Size& callee = sizes_[op.imm];
    return callee.ops <= budget_ && size_ + callee.ops <= ops_max_ && depth_ + callee.depth + 1 <= kInlinedDepthMax;
  }
  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    if (!Inlines(op)) {
      return FunctionCopier::CopyOp(id);
    }
    size_ += sizes_[op.imm].ops;
    budget_ -= sizes_[op.imm].ops;
    const std::vector<ValueId> arguments = Map(op);
    const OpId block = b_.BeginBlock(Opcode::kBlock, {}, ResultTypes(op), op.source);
    to_.op(block).origin = op.origin;
    CalleeCopier(module_, op, *this, block).Run(arguments);
    b_.End();
    Bind(op.first_result, b_.Results(block));
  }

  const ir::Module& module_;
  const uint32_t ops_max_;
  const std::vector<bool>& may_inline_;
  const std::vector<Size>& sizes_;
  uint32_t& budget_;
  uint32_t size_;       // In operations; grows with the caller.
  uint32_t depth_ = 0;  // Number of open regions.
};

// Scratch state is shared by all instances that run in lockstep. A caller that stores to it could not run in lockstep,
// and a caller that loads what its callee has stored would find the last instance's value.
class ScratchUse {
 public:
  explicit ScratchUse(const ir::Module& module) : reaches_store_(module.functions.size(), false) {}

  // Returns true if the function, whose callees have been examined before, must not be inlined.
  bool KeepsApart(const ir::Function& function, uint32_t index, bool is_recursive) {
    bool stores = false, loads = false, calls = is_recursive;
    ir::ForEachOp(function, [&](OpId id) {
      const Op& op = function.op(id);
      const bool is_state = ir::IsState(op.space) && ir::Info(op.code).family == ir::Family::kMemory;
      stores |= is_state && op.space == ir::Space::kScratch && (ir::Info(op.code).effects & ir::kWrites) != 0;
      loads |= is_state && (ir::Info(op.code).effects & ir::kReads) != 0;
      calls |= op.code == Opcode::kCall && reaches_store_[op.imm];
    });
    reaches_store_[index] = stores || calls;
    return stores || (loads && calls);
  }

 private:
  std::vector<bool> reaches_store_;  // Indexed by FunctionId; true also if unknown.
};

bool CallsAny(const ir::Function& function, const std::vector<bool>& may_inline) {
  bool found = false;
  ir::ForEachOp(function, [&](OpId id) {
    const Op& op = function.op(id);
    found |= op.code == Opcode::kCall && may_inline[op.imm];
  });
  return found;
}

struct Limits {
  uint32_t ops = 0, total = 0;
  bool keeps_scratch_apart = true;
};

Status Inline(ir::Module& module, const Limits& limits) {
  const CallOrder order(module);
  std::vector<bool> may_inline(module.functions.size());
  std::vector<Size> sizes(module.functions.size());
  uint32_t budget = limits.total;
  ScratchUse scratch(module);
  for (uint32_t i : order.order()) {
    if (CallsAny(module.functions[i], may_inline)) {
      sizes[i] = SizeOf(module.functions[i]);
      module.functions[i] = Inliner(module, FunctionId(i), may_inline, sizes, limits.ops, budget).Run();
    }
    sizes[i] = SizeOf(module.functions[i]);
    const bool is_recursive = order.IsRecursive(i);
    const bool stays_apart = limits.keeps_scratch_apart && scratch.KeepsApart(module.functions[i], i, is_recursive);
    may_inline[i] = !stays_apart && !is_recursive;
  }
  return absl::OkStatus();
}

}  // namespace

Status InlineCalls(ir::Module& module) {
  return Inline(module, {.ops = kInlinedOpsMax, .total = kInlinedTotalMax, .keeps_scratch_apart = true});
}

Status InlineAllCalls(ir::Module& module) {
  return Inline(module, {.ops = kInlinedOpsMaxGpu, .total = kInlinedTotalMaxGpu, .keeps_scratch_apart = false});
}

}  // namespace hpvm::pass
