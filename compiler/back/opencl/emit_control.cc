// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/kernel_writer.h"
#include "compiler/back/opencl/literal.h"
#include "compiler/ir/spelling.h"

namespace hpvm::opencl {
namespace {

using ir::Opcode;

// Compilers take 256 brackets in one another; ours are few, expressions' fewer.
constexpr size_t kBracketsMax = 60;

}  // namespace

void KernelWriter::WriteBody() {
  open_.push_back({OpId(), function_.body, 0, false});
  while (!open_.empty()) {
    const ir::Region& region = function_.region(open_.back().region);
    if (open_.back().next == region.ops.size()) {
      const Open ended = open_.back();
      open_.pop_back();
      End(ended);
      continue;
    }
    const OpId id = region.ops[open_.back().next++];
    const Op& op = function_.op(id);
    if (meet_used_[id.index]) {
      MeetGroup(id);
    }
    if (ir::OwnsRegions(op.code)) {
      Begin(id);
    } else if (ir::IsTerminator(op.code)) {
      WriteTerminator(id, open_.back().next == region.ops.size());
    } else if (!(op.code == Opcode::kBarrier && meet_used_[id.index])) {
      WriteOp(id);  // A meeting is a barrier.
    }
  }
}

void KernelWriter::Begin(OpId id) {
  const Op& op = function_.op(id);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    Declare(ValueId(op.first_result.index + i));
  }
  label_[id.index] = labels_++;
  const ir::Region& body = function_.region(op.body);
  const bool goes_by_step = by_steps_ && op.code == Opcode::kLoop && has_barrier_[id.index];
  const bool is_flat = goes_by_step || open_.size() > kBracketsMax;
  if (op.code == Opcode::kBlock) {
    for (uint32_t i = 0; i < body.param_count; ++i) {
      names_[body.first_param.index + i] = Operand(op, i);
    }
  } else if (op.code == Opcode::kLoop) {
    for (uint32_t i = 0; i < body.param_count; ++i) {
      Define(ValueId(body.first_param.index + i), Operand(op, i));
    }
    if (goes_by_step) {
      loop_step_[id.index] = BeginStep();
    } else if (is_flat) {
      Label(Cat("again", label_[id.index]));
    } else {
      Line("for (;;) {");
      ++indent_;
    }
  } else if (is_flat) {
    Line("if (", Operand(op, 0), " == 0u) goto else", label_[id.index], ";");
  } else {
    const bool is_other = IsEmpty(id, op.body) && !IsEmpty(id, op.otherwise);
    Line("if (", Operand(op, 0), is_other ? " == 0u) {" : " != 0u) {");
    ++indent_;
    if (is_other) {
      open_.push_back({id, op.otherwise, 0, false});
      return;
    }
  }
  open_.push_back({id, op.body, 0, is_flat});
}

// Nothing there but the leave that ends it.
bool KernelWriter::IsEmpty(OpId id, ir::RegionId side) const {
  const ir::Region& region = function_.region(side);
  const Op& first = function_.op(region.ops[0]);
  return region.ops.size() == 1 && first.code == Opcode::kLeave && first.operand_count == 0 &&
         function_.targets_of(first)[0].op == id && !meet_used_[region.ops[0].index];
}

void KernelWriter::End(const Open& open) {
  if (!open.op.valid()) {
    return;
  }
  const Op& op = function_.op(open.op);
  const uint32_t label = label_[open.op.index];
  if (op.code == Opcode::kLoop) {
    if (next_used_[open.op.index]) {
      Label(Cat("next", label));
    }
    if (open.is_flat) {
      if (next_used_[open.op.index]) {
        Line("goto again", label, ";");
      }
    } else {
      --indent_;
      Line("}");
    }
  } else if (op.code == Opcode::kIf) {
    const bool is_first = open.region == op.body;
    if (is_first && (open.is_flat || !IsEmpty(open.op, op.otherwise))) {
      if (open.is_flat) {
        end_used_[open.op.index] = true;
        Line("goto end", label, ";");
        Label(Cat("else", label));
      } else {
        --indent_;
        Line("} else {");
        ++indent_;
      }
      open_.push_back({open.op, op.otherwise, 0, open.is_flat});
      return;
    }
    if (!open.is_flat) {
      --indent_;
      Line("}");
    }
  }
  if (end_used_[open.op.index]) {
    Label(Cat("end", label));
  }
}

void KernelWriter::WriteTerminator(OpId id, bool is_last) {
  const Op& op = function_.op(id);
  switch (op.code) {
    case Opcode::kLeave:
    case Opcode::kContinue:
      return WriteJump(id, function_.targets_of(op)[0], function_.operands_of(op), is_last);
    case Opcode::kLeaveTable:
      return WriteLeaveTable(id);
    case Opcode::kTrap:
      return Trap(id, "", static_cast<ir::TrapCode>(op.imm));
    default:
      // The body's end returns by itself.
      if (open_.size() > 1) {
        by_steps_ ? EndInstance() : Line("return;");
      }
  }
}

void KernelWriter::WriteJump(OpId, const ir::Target& target, std::span<const ValueId> values, bool falls_through) {
  const Op& owner = function_.op(target.op);
  const ir::Region& body = function_.region(owner.body);
  const ValueId first = target.is_continue ? body.first_param : owner.first_result;
  // A value that is another's target must be read before that is assigned.
  std::vector<std::string> sources;
  for (size_t i = 0; i < values.size(); ++i) {
    sources.push_back(Name(values[i]));
    for (size_t j = 0; target.is_continue && j < i; ++j) {
      if (sources[i] == Name(ValueId(first.index + j))) {
        sources[i] = Fresh("t");
        Local("", TypeName(TypeOf(values[i])), sources[i], Name(values[i]));
        break;
      }
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& to = Name(ValueId(first.index + i));
    if (to != sources[i]) {
      Line(to, " = ", sources[i], ";");
    }
  }
  const bool is_own = open_.back().op == target.op;
  if (is_own && falls_through && owner.code != Opcode::kLoop) {
    return;
  }
  // `break` and `continue` mean the innermost loop that is written with brackets.
  size_t innermost = open_.size();
  while (innermost-- > 0) {
    const OpId op = open_[innermost].op;
    if (op.valid() && function_.op(op).code == Opcode::kLoop) {
      break;
    }
  }
  const bool is_innermost = innermost < open_.size() && open_[innermost].op == target.op && !open_[innermost].is_flat;
  const uint32_t label = label_[target.op.index];
  if (const auto step = loop_step_.find(target.op.index); target.is_continue && step != loop_step_.end()) {
    WaitForStep(step->second);
  } else if (target.is_continue) {
    if (is_innermost) {
      if (!(is_own && falls_through)) {
        Line("continue;");
      }
    } else {
      next_used_[target.op.index] = true;
      Line("goto next", label, ";");
    }
  } else if (is_innermost) {
    Line("break;");
  } else if (is_own && falls_through && owner.code == Opcode::kLoop) {
    // A flat loop: what follows is its end, unless somebody continues it there.
    end_used_[target.op.index] = true;
    Line("goto end", label, ";");
  } else {
    end_used_[target.op.index] = true;
    Line("goto end", label, ";");
  }
}

void KernelWriter::WriteLeaveTable(OpId id) {
  const Op& op = function_.op(id);
  const auto targets = function_.targets_of(op);
  const auto values = function_.operands_of(op).subspan(1);
  const std::string& index = Operand(op, 0);
  for (size_t i = 0; i + 1 < targets.size(); ++i) {
    // Neighbours that go to one place are one range.
    size_t end = i + 1;
    while (end + 1 < targets.size() && targets[end].op == targets[i].op &&
           targets[end].is_continue == targets[i].is_continue) {
      ++end;
    }
    if (end == i + 1) {
      Line("if (", index, " == ", i, "u) {");
    } else {
      Line("if (", index, " >= ", i, "u && ", index, " < ", end, "u) {");
    }
    ++indent_;
    WriteJump(id, targets[i], values, false);
    --indent_;
    Line("}");
    i = end - 1;
  }
  WriteJump(id, targets.back(), values, false);
}

void KernelWriter::WriteBarrier() {
  if (by_steps_) {
    WaitForStep(steps_ + 1);
    BeginStep();
  } else {
    Line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);");
  }
}

void KernelWriter::MeetGroup(OpId id) {
  Label(Cat("meet", id.index));
  WriteBarrier();
  Line("if (stopped[meeting] != 0u) return;");
  Line("meeting ^= 1u;");
}

void KernelWriter::Trap(OpId id, const std::string& condition, ir::TrapCode code, const std::string& address,
                        uint32_t bytes) {
  TrapWith(id, condition, Cat(bytes << 16 | static_cast<uint32_t>(code), "u"), address);
}

// Of the instance that the operation works for.
std::string KernelWriter::TrappingId(OpId id, uint32_t dimension) {
  const std::string first = dimension == 0 ? "x" : "y";
  const CoarseModule* coarse = options_.coarse;
  if (coarse == nullptr) {
    return first;
  }
  const uint8_t place = coarse->place[id.index][dimension];
  if (place != CoarseModule::kComputed) {
    return place == 0 ? first : Cat(first, " + ", static_cast<uint32_t>(place), "u");
  }
  const ValueId computed = coarse->computed[dimension];
  return computed.valid() && !Name(computed).empty() ? Cat(first, " + ", Name(computed)) : first;
}

void KernelWriter::TrapWith(OpId id, const std::string& condition, const std::string& code,
                            const std::string& address) {
  const Op& op = function_.op(id);
  can_trap_ = true;
  helpers_.Need("record_trap");
  Fact(GpuArgument::Kind::kTrapRecord);
  Fact(GpuArgument::Kind::kTrapIndex);
  for (uint32_t d = 0; d < 3; ++d) {
    InstanceId(d);
  }
  const std::string x = TrappingId(id, 0), y = TrappingId(id, 1);
  const std::string here = x == "x" && y == "y" ? "HERE" : Cat("traps, trap_index, ", x, ", ", y, ", z");
  std::string call = Cat("record_trap(", here, ", ", code, ", ", op.source, "u, ",
                         op.origin != 0 ? op.origin - 1 : module_.entry.index, "u, ", address, ");");
  const OpId meets = routes_.empty() ? OpId() : routes_[id.index];
  if (meets.valid()) {
    needs_meeting_ = true;
    meet_used_[meets.index] = true;
    Append(call, " stopped[meeting] = 1u; goto meet", meets.index, ";");
  } else if (by_steps_) {
    needs_meeting_ = ends_early_ = true;
    call += " stopped = 1u; goto done;";
  } else {
    call += " return;";
  }
  if (condition.empty()) {
    Line("{ ", call, " }");
  } else {
    Line("if (", condition, ") { ", call, " }");
  }
}

}  // namespace hpvm::opencl
