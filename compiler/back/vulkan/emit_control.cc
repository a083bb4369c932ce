// SPDX-License-Identifier: Apache-2.0
// Structured control; emitter.h says how.
#include <algorithm>

#include "base/limits.h"
#include "compiler/back/vulkan/emitter.h"
#include "compiler/ir/launch.h"

namespace hpvm::vulkan {

using ir::Opcode;

namespace {

// SPIR-V's limit on nesting is 1023 constructs; checks nest a little further inside.
constexpr size_t kFramesMax = 1000;

}  // namespace

// True when control leaves the region's end for what comes behind the operation that owns it, which is no construct.
bool KernelEmitter::EmitRegion(ir::RegionId region) {
  const std::span<const ir::OpId> ops = f_.region(region).ops;
  for (size_t i = 0; i + 1 < ops.size(); ++i) {
    if (postpones_) {
      MeetAt(ops, i);
      OpenMeeting(ops, i);
    }
    if (!EmitOp(ops[i])) {
      return SkipRest(ops, i);
    }
  }
  if (postpones_) {
    MeetAt(ops, ops.size() - 1);
    OpenMeeting(ops, ops.size() - 1);
  }
  return EmitTerminator(ops.back());
}

// What comes behind operation `from` is not reached, but by traps on the way to an anchor.
bool KernelEmitter::SkipRest(std::span<const ir::OpId> ops, size_t from) {
  for (size_t i = from + 1; i < ops.size() && postpones_; ++i) {
    const auto found = meetings_.find(ops[i].index);
    if (found == meetings_.end() || !found->second.is_open) {
      continue;
    }
    found->second.is_open = false;
    if (CloseFrame()) {
      EmitControlBarrier();
      EmitFlagTest();
      w.Do(spv::OpReturn, {});  // Who gets here has trapped.
    }
    return false;
  }
  return false;
}

bool KernelEmitter::EmitOp(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  switch (ir::Info(op.code).family) {
    case ir::Family::kMemory:
      return EmitMemory(id);
    case ir::Family::kAtomic:
      return EmitAtomic(id);
    case ir::Family::kGlobal:
      EmitGlobal(op);
      return true;
    case ir::Family::kQuery:
      SetResult(op, EmitQuery(op));
      return true;
    case ir::Family::kSync:
      if (op.code == Opcode::kBarrier) {
        EmitBarrier(id);
      } else {
        EmitLocalAlloc(id);
      }
      return true;
    case ir::Family::kCall:
      Refuse("A GPU's kernel makes no calls and prints nothing.");
      for (uint32_t i = 0; i < op.result_count; ++i) {
        const ir::ValueId result(op.first_result.index + i);
        values_[result.index] = K(f_.type_of(result), 0);
      }
      return true;
    case ir::Family::kControl:
      return op.code == Opcode::kBlock ? EmitBlock(id) : op.code == Opcode::kLoop ? EmitLoop(id) : EmitIf(id);
    default:
      SetResult(op, EmitArithmetic(op));
      return true;
  }
}

void KernelEmitter::EmitGlobal(const ir::Op& op) {
  const ir::Global& global = module_.globals[op.imm];
  if (!global.is_mutable) {
    SetResult(op, K(global.type, global.init));
    return;
  }
  SpvId& variable = globals_[op.imm];
  if (variable == 0) {
    variable = w.LocalVariable(m_.TypeOf(global.type), K(global.type, global.init));
  }
  if (op.code == Opcode::kGlobalSet) {
    c.Store(variable, Operand(op, 0));
  } else {
    SetResult(op, c.Load(m_.TypeOf(global.type), variable));
  }
}

void KernelEmitter::EmitLocalAlloc(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  const SpvId base = GroupBase();
  const uint64_t offset = plan_.local_offset[id.index];
  const SpvId address = w.Op(spv::OpIAdd, WordsType(), {base, K(module_.address_type(), offset)});
  SetResult(op, address);
}

std::span<const SpvId> KernelEmitter::Variables(ir::ValueId first, uint32_t count) {
  std::vector<SpvId>& variables = variables_[first.index];
  for (uint32_t i = static_cast<uint32_t>(variables.size()); i < count; ++i) {
    variables.push_back(w.LocalVariable(m_.TypeOf(f_.type_of(ir::ValueId(first.index + i)))));
  }
  return variables;
}

void KernelEmitter::StoreAll(ir::ValueId first, uint32_t count, std::span<const ir::ValueId> values) {
  if (count == 0) {
    return;
  }
  const std::span<const SpvId> variables = Variables(first, count);
  for (uint32_t i = 0; i < count; ++i) {
    c.Store(variables[i], ValueOf(values[i]));
  }
}

void KernelEmitter::LoadAll(ir::ValueId first, uint32_t count) {
  if (count == 0) {
    return;
  }
  const std::span<const SpvId> variables = Variables(first, count);
  for (uint32_t i = 0; i < count; ++i) {
    const ir::ValueId value(first.index + i);
    values_[value.index] = c.Load(m_.TypeOf(f_.type_of(value)), variables[i]);
  }
}

void KernelEmitter::Bind(ir::ValueId first, std::span<const ir::ValueId> values) {
  for (uint32_t i = 0; i < values.size(); ++i) {
    values_[first.index + i] = ValueOf(values[i]);
    conditions_[first.index + i] = conditions_[values[i].index];
  }
}

void KernelEmitter::OpenSwitch(ir::OpId op) {
  Frame frame;
  frame.kind = Frame::Kind::kSwitch;
  frame.op = op;
  frame.merge = w.NewId();
  frame.name = next_name_++;
  const SpvId inside = w.NewId();
  w.Do(spv::OpSelectionMerge, {frame.merge, spv::SelectionControlMaskNone});
  w.Do(spv::OpSwitch, {c.K(0), inside});
  w.Label(inside);
  frames_.push_back(std::move(frame));
  if (frames_.size() > kFramesMax) {
    Refuse("The kernel's control nests deeper than the limit (" + std::to_string(kFramesMax) + " constructs).");
  }
}

void KernelEmitter::FallOut() {
  frames_.back().is_reached = true;
  w.Do(spv::OpBranch, {frames_.back().merge});
}

bool KernelEmitter::EmitBlock(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  const ir::Region& body = f_.region(op.body);
  Bind(body.first_param, f_.operands_of(op));
  if (!is_left_inside_[id.index]) {
    return EmitRegion(op.body);
  }
  OpenSwitch(id);
  EmitRegion(op.body);
  if (!CloseFrame()) {
    return false;
  }
  LoadAll(op.first_result, op.result_count);
  return true;
}

bool KernelEmitter::EmitLoop(ir::OpId id) {
  if (!is_continued_[id.index]) {
    return EmitBlock(id);
  }
  const ir::Op& op = f_.op(id);
  const ir::Region& body = f_.region(op.body);
  StoreAll(body.first_param, body.param_count, f_.operands_of(op));
  Frame frame;
  frame.kind = Frame::Kind::kLoop;
  frame.op = id;
  frame.merge = w.NewId();
  frame.next = w.NewId();
  frame.name = next_name_++;
  const SpvId header = w.NewId(), inside = w.NewId(), next = frame.next;
  if (cuts_loops_) {
    c.Store(LeftSlot(), c.K(0));
  }
  w.Do(spv::OpBranch, {header});
  w.Label(header);
  w.Do(spv::OpLoopMerge, {frame.merge, frame.next, spv::LoopControlMaskNone});
  w.Do(spv::OpBranch, {inside});
  w.Label(inside);
  frames_.push_back(std::move(frame));
  if (frames_.size() > kFramesMax) {
    Refuse("The kernel's control nests deeper than the limit (" + std::to_string(kFramesMax) + " constructs).");
  }
  LoadAll(body.first_param, body.param_count);
  EmitRegion(op.body);
  w.Label(next);
  if (frames_.back().goes_on_with_name) {
    c.Store(Selector(), c.K(0));
  }
  EmitBackEdge(header);
  if (!CloseFrame()) {
    return false;
  }
  LoadAll(op.first_result, op.result_count);
  return true;
}

// Compilers do not keep what is behind a loop that nothing leaves, and whom the driver cut off would go unnoticed. They
// find such loops where none is written, too: behind a condition that stays as it is. So each loop gets a way out, on a
// condition that never holds and that no compiler knows.
void KernelEmitter::EmitBackEdge(SpvId header) {
  const Frame& frame = frames_.back();
  if (!cuts_loops_) {
    w.Do(spv::OpBranch, {header});
    return;
  }
  const SpvId left = w.Op(spv::OpLoad, c.U32(), {LeftSlot(), spv::MemoryAccessVolatileMask});
  w.Do(spv::OpBranchConditional, {c.Equal(left, c.K(frame.name)), frame.merge, header});
}

// With a switch around it if something further inside leaves it: a selection's merge is only branched to from the
// selection itself.
bool KernelEmitter::EmitIf(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  const SpvId condition = ConditionOf(f_.operands_of(op)[0]);
  if (is_left_inside_[id.index]) {
    OpenSwitch(id);
  }
  Frame frame;
  frame.kind = Frame::Kind::kSelection;
  frame.op = id;
  frame.merge = w.NewId();
  const SpvId yes = w.NewId(), no = w.NewId();
  w.Do(spv::OpSelectionMerge, {frame.merge, spv::SelectionControlMaskNone});
  w.Do(spv::OpBranchConditional, {condition, yes, no});
  frames_.push_back(std::move(frame));
  w.Label(yes);
  EmitRegion(op.body);
  w.Label(no);
  EmitRegion(op.otherwise);
  const bool is_reached = CloseFrame();
  if (is_left_inside_[id.index]) {
    if (is_reached) {
      FallOut();
    }
    if (!CloseFrame()) {
      return false;
    }
  } else if (!is_reached) {
    return false;
  }
  LoadAll(op.first_result, op.result_count);
  return true;
}

bool KernelEmitter::EmitTerminator(ir::OpId id) {
  const ir::Op& op = f_.op(id);
  switch (op.code) {
    case Opcode::kLeave:
    case Opcode::kContinue:
      return EmitJump(f_.targets_of(op)[0], f_.operands_of(op), region_of_[id.index]);
    case Opcode::kLeaveTable:
      EmitLeaveTable(op);
      return false;
    case Opcode::kTrap:
      TrapNow(static_cast<ir::TrapCode>(op.imm), op);
      return false;
    default:
      w.Do(spv::OpReturn, {});
      return false;
  }
}

bool KernelEmitter::EmitJump(const ir::Target& target, std::span<const ir::ValueId> values, ir::RegionId from) {
  const ir::Op& owner = f_.op(target.op);
  if (target.is_continue) {
    const ir::Region& body = f_.region(owner.body);
    StoreAll(body.first_param, body.param_count, values);
    JumpTo({FrameOf(target.op), true});
    return false;
  }
  const bool is_own = from.valid() && f_.region(from).owner == target.op;
  const bool is_plain =
      owner.code == Opcode::kBlock || (owner.code == Opcode::kLoop && !is_continued_[target.op.index]);
  if (is_own && is_plain && !is_left_inside_[target.op.index]) {
    Bind(owner.first_result, values);
    return true;
  }
  if (!is_own && ends_kernel_[target.op.index]) {
    w.Do(spv::OpReturn, {});
    return false;
  }
  StoreAll(owner.first_result, owner.result_count, values);
  if (is_own && owner.code == Opcode::kIf) {
    FallOut();  // The selection is the innermost frame here.
  } else {
    JumpTo({FrameOf(target.op), false});
  }
  return false;
}

// A chain of tests, one for each target: a switch of its own would keep the targets from being reached directly.
void KernelEmitter::EmitLeaveTable(const ir::Op& op) {
  const std::span<const ir::Target> targets = f_.targets_of(op);
  const std::span<const ir::ValueId> values = f_.operands_of(op).subspan(1);
  const SpvId index = Operand(op, 0);
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
