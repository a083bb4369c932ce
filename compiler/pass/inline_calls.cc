// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/inline_calls.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/spelling.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/call_order.h"
#include "compiler/pass/library_name.h"

namespace hpvm {
namespace {

using ir::FunctionId;
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::OwnsRegions;
using ir::RegionId;
using ir::ValueId;

struct Size {
  uint32_t ops = 0, depth = 0;
};

// The depth counts both sides of an if: it is an upper bound.
Size SizeOf(const ir::Function& function) {
  Size size;
  std::vector<std::pair<RegionId, size_t>> open{{function.body, 0}};
  while (!open.empty()) {
    size.depth = std::max(size.depth, static_cast<uint32_t>(open.size()));
    auto& [region, next] = open.back();
    if (next == function.region(region).ops.size()) {
      open.pop_back();
      continue;
    }
    const Op& op = function.op(function.region(region).ops[next++]);
    ++size.ops;
    if (op.code == Opcode::kIf) {
      open.push_back({op.otherwise, 0});
    }
    if (OwnsRegions(op.code)) {
      open.push_back({op.body, 0});
    }
  }
  return size;
}

// Copies a caller with the bodies of some of its callees. One frame a function that is being copied; a callee's holds
// no further inlining, since it has been through that itself.
class Inliner {
 public:
  // `budget`: operations that may still be added; falls. `ops_max`: of the caller.
  Inliner(const ir::Module& module, FunctionId caller, const std::vector<bool>& may_inline,
          const std::vector<Size>& sizes, uint32_t ops_max, uint32_t& budget)
      : module_(module),
        ops_max_(ops_max),
        may_inline_(may_inline),
        sizes_(sizes),
        budget_(budget),
        builder_(to_),
        size_(sizes[caller.index]) {
    to_.name = module.function(caller).name;
    to_.type = module.function(caller).type;
    to_.fast_math = module.function(caller).fast_math;
    Frame& frame = Push(caller);
    const std::span<const ValueId> params = builder_.BeginBody();
    BindParams(frame, params);
  }

  ir::Function Run() && {
    while (!frames_.empty()) {
      Step();
    }
    return std::move(to_);
  }

 private:
  struct Open {
    RegionId region;
    size_t next = 0;
  };
  struct Frame {
    const ir::Function* from;
    uint32_t index;
    std::vector<ValueId> values;  // By old ValueId.
    std::vector<OpId> ops;        // By old OpId of what owns regions.
    std::vector<Open> open;
    OpId block;                // Where returns go; invalid in the caller.
    const Op* call = nullptr;  // In the frame below.
  };

  Frame& Push(FunctionId id) {
    const ir::Function& from = module_.function(id);
    Frame frame;
    frame.from = &from;
    frame.index = id.index;
    frame.values.resize(from.values.size());
    frame.ops.resize(from.ops.size());
    frame.open.push_back({from.body});
    frames_.push_back(std::move(frame));
    return frames_.back();
  }
  static void BindParams(Frame& frame, std::span<const ValueId> params) {
    const ir::Region& body = frame.from->region(frame.from->body);
    for (size_t i = 0; i < params.size(); ++i) {
      frame.values[body.first_param.index + i] = params[i];
    }
  }

  std::vector<ValueId> Map(const Frame& frame, const Op& op, uint32_t first = 0) const {
    std::vector<ValueId> values;
    for (uint32_t i = first; i < op.operand_count; ++i) {
      values.push_back(frame.values[frame.from->operands_of(op)[i].index]);
    }
    return values;
  }
  void BindResults(Frame& frame, const Op& op, OpId made) {
    const std::vector<ValueId> results = builder_.Results(made);
    for (uint32_t i = 0; i < op.result_count; ++i) {
      frame.values[op.first_result.index + i] = results[i];
    }
  }
  static std::vector<ir::Type> ResultTypes(const Frame& frame, const Op& op) {
    std::vector<ir::Type> types;
    for (uint32_t i = 0; i < op.result_count; ++i) {
      types.push_back(frame.from->type_of(ValueId(op.first_result.index + i)));
    }
    return types;
  }
  // Operations written in this frame's function stand in the caller now.
  void SetOrigin(const Frame& frame, OpId made, uint32_t origin) {
    if (frames_.size() > 1) {
      to_.op(made).origin = origin != 0 ? origin : frame.index + 1;
    } else {
      to_.op(made).origin = origin;
    }
  }

  void Step() {
    Frame& frame = frames_.back();
    if (frame.open.empty()) {
      const Op* call = frame.call;
      const OpId block = frame.block;
      frames_.pop_back();
      if (call != nullptr) {
        builder_.End();
        BindResults(frames_.back(), *call, block);
      }
      return;
    }
    const ir::Region& region = frame.from->region(frame.open.back().region);
    if (frame.open.back().next == region.ops.size()) {
      return CloseRegion(frame);
    }
    const OpId id = region.ops[frame.open.back().next++];
    const Op& op = frame.from->op(id);
    if (OwnsRegions(op.code)) {
      Begin(frame, id);
    } else if (ir::IsTerminator(op.code)) {
      Terminator(frame, op);
    } else if (Inlines(op)) {
      Enter(frame, op);
    } else {
      Plain(frame, op);
    }
  }
  void CloseRegion(Frame& frame) {
    const RegionId ended = frame.open.back().region;
    const OpId owner = frame.from->region(ended).owner;
    frame.open.pop_back();
    if (!owner.valid()) {
      return;
    }
    const Op& op = frame.from->op(owner);
    if (op.code == Opcode::kIf && op.body == ended) {
      builder_.Else();
      frame.open.push_back({op.otherwise});
      return;
    }
    builder_.End();
    BindResults(frame, op, frame.ops[owner.index]);
  }
  void Begin(Frame& frame, OpId id) {
    const Op& op = frame.from->op(id);
    const std::vector<ir::Type> results = ResultTypes(frame, op);
    OpId made;
    if (op.code == Opcode::kIf) {
      made = builder_.BeginIf(Map(frame, op)[0], results, op.source);
    } else {
      made = builder_.BeginBlock(op.code, Map(frame, op), results, op.source);
      const std::vector<ValueId> params = builder_.Params(made);
      const ValueId first = frame.from->region(op.body).first_param;
      for (size_t i = 0; i < params.size(); ++i) {
        frame.values[first.index + i] = params[i];
      }
    }
    SetOrigin(frame, made, op.origin);
    frame.ops[id.index] = made;
    frame.open.push_back({op.body});
  }
  void Plain(Frame& frame, const Op& op) {
    const OpId made = builder_.Append(op, Map(frame, op), ResultTypes(frame, op));
    SetOrigin(frame, made, op.origin);
    BindResults(frame, op, made);
  }
  void Terminator(Frame& frame, const Op& op) {
    std::vector<ir::Target> targets;
    for (const ir::Target& target : frame.from->targets_of(op)) {
      targets.push_back({frame.ops[target.op.index], target.is_continue});
    }
    switch (op.code) {
      case Opcode::kLeave:
        builder_.Leave(targets[0].op, Map(frame, op), op.source);
        break;
      case Opcode::kContinue:
        builder_.Continue(targets[0].op, Map(frame, op), op.source);
        break;
      case Opcode::kLeaveTable:
        builder_.LeaveTable(Map(frame, op)[0], targets, Map(frame, op, 1), op.source);
        break;
      case Opcode::kTrap:
        if (frame.call != nullptr && IsLibraryName(frame.from->name)) {
          // The author knows the call, not where the library noticed.
          builder_.Trap(static_cast<ir::TrapCode>(op.imm), frame.call->source);
          to_.op(OpId(to_.ops.size() - 1)).origin = frame.call->origin;
          return;
        }
        builder_.Trap(static_cast<ir::TrapCode>(op.imm), op.source);
        break;
      default:
        if (frame.block.valid()) {
          builder_.Leave(frame.block, Map(frame, op), op.source);
        } else {
          builder_.Return(Map(frame, op), op.source);
        }
    }
    SetOrigin(frame, OpId(to_.ops.size() - 1), op.origin);
  }
  bool Inlines(const Op& op) const {
    if (op.code != Opcode::kCall || frames_.size() > 1 || !may_inline_[op.imm]) {
      return false;
    }
    const Size& callee = sizes_[op.imm];
    return callee.ops <= budget_ && size_.ops + callee.ops <= ops_max_ &&
           frames_[0].open.size() + callee.depth + 1 <= kInlinedDepthMax;
  }
  void Enter(const Frame& frame, const Op& call) {
    size_.ops += sizes_[call.imm].ops;
    budget_ -= sizes_[call.imm].ops;
    const std::vector<ValueId> arguments = Map(frame, call);
    const OpId block = builder_.BeginBlock(Opcode::kBlock, {}, ResultTypes(frame, call), call.source);
    to_.op(block).origin = call.origin;
    Frame& callee = Push(FunctionId(static_cast<uint32_t>(call.imm)));
    callee.block = block;
    callee.call = &call;
    BindParams(callee, arguments);
  }

  const ir::Module& module_;
  const uint32_t ops_max_;
  const std::vector<bool>& may_inline_;
  const std::vector<Size>& sizes_;
  uint32_t& budget_;
  ir::Function to_;
  ir::Builder builder_;
  std::vector<Frame> frames_;
  Size size_;  // As the caller grows.
};

// Scratch state is one for all instances that run in lockstep. A caller that stored to it could not do so, and one that
// loads what its callee has left there would find what the last instance left.
class ScratchUse {
 public:
  explicit ScratchUse(const ir::Module& module) : reaches_store_(module.functions.size(), false) {}

  // Whether the function, whose callees have been looked at before, must not stand in its callers' place.
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
  std::vector<bool> reaches_store_;  // By FunctionId; true also where it is not known.
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

}  // namespace hpvm
