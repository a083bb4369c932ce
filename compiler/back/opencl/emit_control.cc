// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/kernel_writer.h"
#include "compiler/back/opencl/literal.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::opencl {
namespace {

// Compilers accept 256 nested brackets; statements use up to this limit, expressions nest less.
constexpr size_t kBracketsMax = 60;

}  // namespace

void KernelWriter::WriteBody() {
  open_.push_back({OpId(), v_.f.body, 0, false});
  while (!open_.empty()) {
    const ir::Region& region = v_.f.region(open_.back().region);
    if (open_.back().next == region.ops.size()) {
      const Open ended = open_.back();
      open_.pop_back();
      End(ended);
      continue;
    }
    const OpId id = region.ops[open_.back().next++];
    const Op& op = v_.f.op(id);
    if (reconvergence_.IsMet(id)) {
      reconvergence_.MeetGroup(id);
    }
    reconvergence_.DefineKept(id);
    if (ir::OwnsRegions(op.code)) {
      Begin(id);
    } else if (ir::IsTerminator(op.code)) {
      WriteTerminator(id, open_.back().next == region.ops.size());
    } else {
      WriteOp(id);
    }
  }
}

void KernelWriter::Begin(OpId id) {
  const Op& op = v_.f.op(id);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    text_.Declare(ValueId(op.first_result.index + i));
  }
  label_[id.index] = labels_++;
  const ir::Region& body = v_.f.region(op.body);
  const bool goes_by_step = reconvergence_.by_steps() && op.code == Opcode::kLoop && reconvergence_.HasBarrier(id);
  const bool is_flat = goes_by_step || open_.size() > kBracketsMax;
  if (op.code == Opcode::kBlock) {
    for (uint32_t i = 0; i < body.param_count; ++i) {
      text_.SetName(ValueId(body.first_param.index + i), text_.Operand(op, i));
    }
  } else if (op.code == Opcode::kLoop) {
    for (uint32_t i = 0; i < body.param_count; ++i) {
      text_.Define(ValueId(body.first_param.index + i), text_.Operand(op, i));
    }
    if (goes_by_step) {
      reconvergence_.BeginLoopStep(id);
    } else if (is_flat) {
      text_.Label(Cat("again", label_[id.index]));
    } else {
      text_.Line("for (;;) {");
      text_.Indent();
    }
  } else if (is_flat) {
    text_.Line("if (", text_.Operand(op, 0), " == 0u) goto else", label_[id.index], ";");
  } else {
    const bool is_other = IsEmpty(id, op.body) && !IsEmpty(id, op.otherwise);
    text_.Line("if (", text_.Operand(op, 0), is_other ? " == 0u) {" : " != 0u) {");
    text_.Indent();
    if (is_other) {
      open_.push_back({id, op.otherwise, 0, false});
      return;
    }
  }
  open_.push_back({id, op.body, 0, is_flat});
}

// Returns true if the region contains only its final leave.
bool KernelWriter::IsEmpty(OpId id, ir::RegionId side) const {
  const ir::Region& region = v_.f.region(side);
  const Op& first = v_.f.op(region.ops[0]);
  return region.ops.size() == 1 && first.code == Opcode::kBr && first.operand_count == 0 &&
         v_.f.targets_of(first)[0].op == id && !reconvergence_.IsMet(region.ops[0]);
}

void KernelWriter::End(const Open& open) {
  if (!open.op.valid()) {
    return;
  }
  const Op& op = v_.f.op(open.op);
  const uint32_t label = label_[open.op.index];
  if (op.code == Opcode::kLoop) {
    if (next_used_[open.op.index]) {
      text_.Label(Cat("next", label));
    }
    if (open.is_flat) {
      if (next_used_[open.op.index]) {
        text_.Line("goto again", label, ";");
      }
    } else {
      text_.Outdent();
      text_.Line("}");
    }
  } else if (op.code == Opcode::kIf) {
    const bool is_first = open.region == op.body;
    if (is_first && (open.is_flat || !IsEmpty(open.op, op.otherwise))) {
      if (open.is_flat) {
        end_used_[open.op.index] = true;
        text_.Line("goto end", label, ";");
        text_.Label(Cat("else", label));
      } else {
        text_.Outdent();
        text_.Line("} else {");
        text_.Indent();
      }
      open_.push_back({open.op, op.otherwise, 0, open.is_flat});
      return;
    }
    if (!open.is_flat) {
      text_.Outdent();
      text_.Line("}");
    }
  }
  if (end_used_[open.op.index]) {
    text_.Label(Cat("end", label));
  }
}

void KernelWriter::WriteTerminator(OpId id, bool is_last) {
  const Op& op = v_.f.op(id);
  switch (op.code) {
    case Opcode::kBr:
    case Opcode::kContinue:
      return WriteJump(id, v_.f.targets_of(op)[0], v_.f.operands_of(op), is_last);
    case Opcode::kBrTable:
      return WriteBrTable(id);
    case Opcode::kTrap:
      return traps_.Trap(id, "", static_cast<ir::TrapCode>(op.imm));
    default:
      // The end of the body returns implicitly.
      if (open_.size() > 1) {
        reconvergence_.Return();
      }
  }
}

void KernelWriter::WriteJump(OpId, const ir::Target& target, std::span<const ValueId> values, bool falls_through) {
  const Op& owner = v_.f.op(target.op);
  const ir::Slots slots = ir::SlotsOf(v_.f, target);
  // A value that is the target of another assignment must be read before that assignment.
  std::vector<std::string> sources;
  for (size_t i = 0; i < values.size(); ++i) {
    sources.push_back(text_.Name(values[i]));
    for (size_t j = 0; target.is_continue && j < i; ++j) {
      if (sources[i] == text_.Name(slots[static_cast<uint32_t>(j)])) {
        sources[i] = text_.Fresh("t");
        text_.Local("", TypeName(text_.TypeOf(values[i])), sources[i], text_.Name(values[i]));
        break;
      }
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& to = text_.Name(slots[static_cast<uint32_t>(i)]);
    if (to != sources[i]) {
      text_.Line(to, " = ", sources[i], ";");
    }
  }
  const bool is_own = open_.back().op == target.op;
  if (is_own && falls_through && owner.code != Opcode::kLoop) {
    return;
  }
  // `break` and `continue` refer to the innermost loop that is written with brackets.
  size_t innermost = open_.size();
  while (innermost-- > 0) {
    const OpId op = open_[innermost].op;
    if (op.valid() && v_.f.op(op).code == Opcode::kLoop) {
      break;
    }
  }
  const bool is_innermost = innermost < open_.size() && open_[innermost].op == target.op && !open_[innermost].is_flat;
  const uint32_t label = label_[target.op.index];
  if (target.is_continue && reconvergence_.ContinueByStep(target.op)) {
    return;
  }
  if (target.is_continue) {
    if (is_innermost) {
      if (!(is_own && falls_through)) {
        text_.Line("continue;");
      }
    } else {
      next_used_[target.op.index] = true;
      text_.Line("goto next", label, ";");
    }
  } else if (is_innermost) {
    text_.Line("break;");
  } else if (is_own && falls_through && owner.code == Opcode::kLoop) {
    // A flat loop: its end follows, unless the loop is continued there.
    end_used_[target.op.index] = true;
    text_.Line("goto end", label, ";");
  } else {
    end_used_[target.op.index] = true;
    text_.Line("goto end", label, ";");
  }
}

void KernelWriter::WriteBrTable(OpId id) {
  const Op& op = v_.f.op(id);
  const auto targets = v_.f.targets_of(op);
  const auto values = v_.f.operands_of(op).subspan(1);
  const std::string& index = text_.Operand(op, 0);
  for (size_t i = 0; i + 1 < targets.size(); ++i) {
    // Adjacent indices with one target form a range.
    size_t end = i + 1;
    while (end + 1 < targets.size() && targets[end].op == targets[i].op &&
           targets[end].is_continue == targets[i].is_continue) {
      ++end;
    }
    if (end == i + 1) {
      text_.Line("if (", index, " == ", i, "u) {");
    } else {
      text_.Line("if (", index, " >= ", i, "u && ", index, " < ", end, "u) {");
    }
    text_.Indent();
    WriteJump(id, targets[i], values, false);
    text_.Outdent();
    text_.Line("}");
    i = end - 1;
  }
  WriteJump(id, targets.back(), values, false);
}

}  // namespace hpvm::opencl
