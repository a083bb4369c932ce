// SPDX-License-Identifier: Apache-2.0
// Structured control; control.h describes the scheme.

#include "compiler/back/vulkan/emitter.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/walk.h"

namespace hpvm::vulkan {

// Returns true when control falls out of the region's end to the code after its owner, which is no construct.
bool KernelEmitter::EmitRegion(ir::RegionId region) {
  const std::span<const ir::OpId> ops = v_.f.region(region).ops;
  for (size_t i = 0; i + 1 < ops.size(); ++i) {
    reconvergence_.Pass(ops, i);
    if (!EmitOp(ops[i])) {
      reconvergence_.SkipRest(ops, i);
      return false;
    }
  }
  reconvergence_.Pass(ops, ops.size() - 1);
  return EmitTerminator(ops.back());
}

bool KernelEmitter::EmitOp(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  switch (ir::Info(op.code).family) {
    case ir::Family::kMemory:
      return memory_.EmitMemory(id);
    case ir::Family::kAtomic:
      return atomics_.EmitAtomic(id);
    case ir::Family::kGlobal:
      EmitGlobal(op);
      return true;
    case ir::Family::kQuery:
      values_.SetResult(op, queries_.EmitQuery(op));
      return true;
    case ir::Family::kSync:
      if (op.code == Opcode::kBarrier) {
        reconvergence_.EmitBarrier(id);
      } else {
        EmitLocalAlloc(id);
      }
      return true;
    case ir::Family::kCall:
      v_.Refuse("A GPU's kernel makes no calls and prints nothing.");
      for (const ir::ValueId result : ir::ResultsOf(op)) {
        values_.Set(result, v_.K(v_.f.type_of(result), 0));
      }
      return true;
    case ir::Family::kControl:
      return op.code == Opcode::kBlock ? EmitBlock(id) : op.code == Opcode::kLoop ? EmitLoop(id) : EmitIf(id);
    default:
      values_.SetResult(op, arithmetic_.EmitArithmetic(op));
      return true;
  }
}

void KernelEmitter::EmitGlobal(const ir::Op& op) {
  const ir::Global& global = v_.module.globals[op.imm];
  if (!global.is_mutable) {
    values_.SetResult(op, v_.K(global.type, global.init));
    return;
  }
  SpvId& variable = globals_[op.imm];
  if (variable == 0) {
    variable = w.LocalVariable(v_.m.TypeOf(global.type), v_.K(global.type, global.init));
  }
  if (op.code == Opcode::kGlobalSet) {
    c.Store(variable, values_.Operand(op, 0));
  } else {
    values_.SetResult(op, c.Load(v_.m.TypeOf(global.type), variable));
  }
}

void KernelEmitter::EmitLocalAlloc(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  const SpvId base = arrays_.GroupBase();
  const uint64_t offset = v_.plan.local_offset[id.index];
  const SpvId address = w.Op(spv::OpIAdd, v_.WordsType(), {base, v_.K(v_.module.address_type(), offset)});
  values_.SetResult(op, address);
}

bool KernelEmitter::EmitBlock(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  const ir::Region& body = v_.f.region(op.body);
  values_.Bind(body.first_param, v_.f.operands_of(op));
  if (!control_.IsLeftInside(id)) {
    return EmitRegion(op.body);
  }
  jumps_.OpenSwitch(id);
  EmitRegion(op.body);
  if (!jumps_.CloseFrame()) {
    return false;
  }
  values_.LoadAll(op.first_result, op.result_count);
  return true;
}

bool KernelEmitter::EmitLoop(ir::OpId id) {
  if (!control_.IsContinued(id)) {
    return EmitBlock(id);
  }
  const ir::Op& op = v_.f.op(id);
  const ir::Region& body = v_.f.region(op.body);
  values_.StoreAll(body.first_param, body.param_count, v_.f.operands_of(op));
  jumps_.OpenLoop(id);
  values_.LoadAll(body.first_param, body.param_count);
  EmitRegion(op.body);
  jumps_.GoAround();
  if (!jumps_.CloseFrame()) {
    return false;
  }
  values_.LoadAll(op.first_result, op.result_count);
  return true;
}

// Puts a switch around the selection if an inner jump leaves it: only the selection itself may branch to its merge.
bool KernelEmitter::EmitIf(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  const SpvId condition = values_.ConditionOf(v_.f.operands_of(op)[0]);
  if (control_.IsLeftInside(id)) {
    jumps_.OpenSwitch(id);
  }
  const SpvId no = jumps_.OpenSelection(id, condition);
  EmitRegion(op.body);
  w.Label(no);
  EmitRegion(op.otherwise);
  const bool is_reached = jumps_.CloseFrame();
  if (control_.IsLeftInside(id)) {
    if (is_reached) {
      jumps_.FallOut();
    }
    if (!jumps_.CloseFrame()) {
      return false;
    }
  } else if (!is_reached) {
    return false;
  }
  values_.LoadAll(op.first_result, op.result_count);
  return true;
}

bool KernelEmitter::EmitTerminator(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  switch (op.code) {
    case Opcode::kBr:
    case Opcode::kContinue:
      return EmitJump(v_.f.targets_of(op)[0], v_.f.operands_of(op), control_.RegionOf(id));
    case Opcode::kBrTable:
      EmitBrTable(op);
      return false;
    case Opcode::kTrap:
      traps_.TrapNow(static_cast<ir::TrapCode>(op.imm), op);
      return false;
    default:
      w.Do(spv::OpReturn, {});
      return false;
  }
}

bool KernelEmitter::EmitJump(const ir::Target& target, std::span<const ir::ValueId> values, ir::RegionId from) {
  const ir::Op& owner = v_.f.op(target.op);
  if (target.is_continue) {
    const ir::Region& body = v_.f.region(owner.body);
    values_.StoreAll(body.first_param, body.param_count, values);
    jumps_.JumpTo({jumps_.FrameOf(target.op), true});
    return false;
  }
  const bool is_own = from.valid() && v_.f.region(from).owner == target.op;
  const bool is_plain =
      owner.code == Opcode::kBlock || (owner.code == Opcode::kLoop && !control_.IsContinued(target.op));
  if (is_own && is_plain && !control_.IsLeftInside(target.op)) {
    values_.Bind(owner.first_result, values);
    return true;
  }
  if (!is_own && control_.EndsKernel(target.op)) {
    w.Do(spv::OpReturn, {});
    return false;
  }
  values_.StoreAll(owner.first_result, owner.result_count, values);
  if (is_own && owner.code == Opcode::kIf) {
    jumps_.FallOut();  // The selection is the innermost frame here.
  } else {
    jumps_.JumpTo({jumps_.FrameOf(target.op), false});
  }
  return false;
}

// Emits a chain of tests, one per target: inside a switch of its own the targets could not be reached directly.
void KernelEmitter::EmitBrTable(const ir::Op& op) {
  const std::span<const ir::Target> targets = v_.f.targets_of(op);
  const std::span<const ir::ValueId> values = v_.f.operands_of(op).subspan(1);
  const SpvId index = values_.Operand(op, 0);
  const ir::Target& fallback = targets.back();
  const auto is_same = [](const ir::Target& a, const ir::Target& b) {
    return a.op == b.op && a.is_continue == b.is_continue;
  };
  const auto jump = [&](const ir::Target& target) { EmitJump(target, values, ir::RegionId{}); };
  std::vector<bool> is_done(targets.size(), false);
  for (size_t i = 0; i + 1 < targets.size(); ++i) {
    if (is_done[i] || is_same(targets[i], fallback)) {
      continue;
    }
    SpvId any = 0;
    for (size_t k = i; k + 1 < targets.size(); ++k) {
      if (!is_same(targets[k], targets[i])) {
        continue;
      }
      is_done[k] = true;
      const SpvId is_it = c.Equal(index, c.K(static_cast<uint32_t>(k)));
      any = any == 0 ? is_it : c.Either(any, is_it);
    }
    c.If(any, [&] {
      jump(targets[i]);
      return false;
    });
  }
  jump(fallback);
}

}  // namespace hpvm::vulkan
