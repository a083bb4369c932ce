// SPDX-License-Identifier: Apache-2.0
// Kernels with barriers on processors, in steps.
//
// PoCL makes loops over a group's instances between barriers. If a barrier is not reached on every path through the
// kernel, PoCL 3.1 forms a loop for each exit of the stretch and lets the first instance choose the exit for all,
// which gives wrong results when instances diverge before they reconverge. Such a kernel is therefore written with a
// single barrier, in a single loop around everything: an instance that reaches a barrier notes the step at which it
// continues, and waits there. Loops that contain barriers continue through it as well, because PoCL does not accept
// loops that are entered in the middle.
//
// The loop ends when no instance continues. Three words of group memory alternate: one is written before the barrier
// and read after it; the next one is written from then on; the third, which is not read between these barriers, is
// cleared.
#include "compiler/back/gpu/buffer_fences.h"
#include "compiler/back/opencl/control.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::opencl {
namespace {

constexpr std::string_view kEnded = "0xffffffffu";

}  // namespace

Reconvergence::Reconvergence(Variant& variant, Text& text)
    : v_(variant), text_(text), meet_used_(variant.f.ops.size()) {
  if (v_.plan.trap_exit == gpu::TrapExit::kPostpone) {
    routes_ = gpu::FindTrapRoutes(v_.module, [&](OpId id) { return gpu::MayTrap(v_.module, id, v_.OmitsCheck(id)); });
    fences_ = gpu::FindBufferFences(v_.module);
    if (v_.target.is_processor) {
      PlanSteps();
    }
  }
}

void Reconvergence::PlanSteps() {
  has_barrier_.resize(v_.f.ops.size());
  std::vector<std::pair<OpId, OpId>> owned;  // An operation and the construct that contains it.
  bool is_conditional = false;
  ir::ForEachOp(v_.f, [&](OpId id) {
    const Op& op = v_.f.op(id);
    has_barrier_[id.index] = op.code == Opcode::kBarrier;
    // A trapped instance would keep the others from the following barriers. local_alloc never traps here, but counting
    // it keeps all kernels with group memory in one form, which PoCL is known to compile.
    is_conditional = is_conditional || routes_.rejoin[id.index].valid() || op.code == Opcode::kLocalAlloc;
    const auto own = [&](ir::RegionId region) {
      for (const OpId inner : v_.f.region(region).ops) {
        owned.emplace_back(inner, id);
        is_conditional = is_conditional || v_.f.op(inner).code == Opcode::kReturn;
      }
    };
    if (ir::OwnsRegions(op.code)) {
      own(op.body);
      if (op.code == Opcode::kIf) {
        own(op.otherwise);
      }
    }
  });
  // Inner operations come after those that contain them, so the order is reversed.
  for (size_t i = owned.size(); i-- > 0;) {
    const auto [inner, owner] = owned[i];
    has_barrier_[owner.index] = has_barrier_[owner.index] || has_barrier_[inner.index];
    is_conditional = is_conditional || has_barrier_[inner.index];
  }
  if (!is_conditional) {
    return;
  }
  by_steps_ = true;
  routes_ = {};
}

uint32_t Reconvergence::BeginStep() {
  text_.Label(Cat("step", ++steps_));
  return steps_;
}

void Reconvergence::WaitForStep(uint32_t step) { text_.Line("step = ", step, "u; goto wait;"); }

void Reconvergence::BeginLoopStep(OpId loop) { loop_step_[loop.index] = BeginStep(); }

bool Reconvergence::ContinueByStep(OpId loop) {
  const auto step = loop_step_.find(loop.index);
  if (step == loop_step_.end()) {
    return false;
  }
  WaitForStep(step->second);
  return true;
}

void Reconvergence::Return() {
  ends_early_ = ends_early_ || by_steps_;
  text_.Line(by_steps_ ? "goto done;" : "return;");
}

std::string Reconvergence::ExitOf(OpId id) {
  const OpId rejoin = routes_.rejoin.empty() ? OpId() : routes_.rejoin[id.index];
  if (rejoin.valid()) {
    needs_reconvergence_ = true;
    meet_used_[rejoin.index] = true;
    return Cat(" stopped[meeting] = 1u; goto meet", rejoin.index, ";");
  }
  if (by_steps_) {
    needs_reconvergence_ = ends_early_ = true;
    return " stopped = 1u; goto done;";
  }
  return " return;";
}

void Reconvergence::WriteVariables() {
  if (by_steps_) {
    text_.Line("__local uint running[3];  // running[turn] is 1 when an instance continues after the barrier.");
    text_.Line("__local uint stopped;  // stopped is 1 when an instance has trapped.");
  } else if (needs_reconvergence_) {
    text_.Line(
        "__local uint stopped[2];  // stopped[meeting] is 1 when an instance has trapped before that barrier; the "
        "entries alternate.");
    text_.Line("uint meeting = 0u;");
  }
}

void Reconvergence::WriteStart() {
  if (by_steps_) {
    text_.Line("for (uint i = at; i < 3u; i += size) running[i] = 0u;");
    text_.Line("if (at == 0u) stopped = 0u;");
  } else if (needs_reconvergence_) {
    text_.Line("for (uint i = at; i < 2u; i += size) stopped[i] = 0u;");
  }
}

std::string Reconvergence::StepsHead() {
  text_.Line(
      "uint step = 0u;  // step names the place where the instance continues; all bits are set when it has ended.");
  text_.Line("uint turn = 0u;");
  text_.Line("for (;;) {");
  text_.Indent();
  text_.Line("switch (step) {");
  text_.Indent();
  for (uint32_t step = 1; step <= steps_; ++step) {
    text_.Line("case ", step, "u: goto step", step, ";");
  }
  text_.Line("case ", kEnded, ": goto wait;");
  text_.Line("default: break;");
  text_.Outdent();
  text_.Line("}");
  text_.Outdent();
  return text_.Take();
}

std::string Reconvergence::StepsEnd() {
  if (ends_early_) {
    text_.Label("done");
  }
  text_.Line("step = ", kEnded, ";");
  text_.Label("wait");
  text_.Line("if (step != ", kEnded, ") running[turn] = 1u;");
  text_.Line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);");
  text_.Line("if (running[turn] == 0u) break;");
  if (needs_reconvergence_) {
    text_.Line("if (stopped != 0u) step = ", kEnded, ";");
  }
  text_.Line("turn = turn == 2u ? 0u : turn + 1u;");
  text_.Line("running[turn == 2u ? 0u : turn + 1u] = 0u;");
  text_.Line("}");
  return text_.Take();
}

void Reconvergence::WriteBarrier(OpId id) {
  if (by_steps_) {
    WaitForStep(steps_ + 1);
    BeginStep();
    return;
  }
  const bool tests = routes_.tests[id.index];
  const bool orders_group = tests || v_.plan.local_bytes != 0 || !fences_[id.index];  // A barrier must name a memory.
  text_.Line("barrier(", orders_group ? "CLK_LOCAL_MEM_FENCE" : "", orders_group && fences_[id.index] ? " | " : "",
             fences_[id.index] ? "CLK_GLOBAL_MEM_FENCE" : "", ");");
  if (tests) {
    WriteTest();
  }
}

void Reconvergence::MeetGroup(OpId id) {
  text_.Label(Cat("meet", id.index));
  if (routes_.rejoin_points.at(id.index).waits) {
    text_.Line("barrier(CLK_LOCAL_MEM_FENCE);");
    WriteTest();
  }
}

void Reconvergence::DefineKept(OpId first) {
  const OpId id = routes_.rejoin_after.empty() ? OpId() : routes_.rejoin_after[first.index];
  if (!id.valid() || !routes_.rejoin_points.at(id.index).defines) {
    return;
  }
  for (const ValueId value : routes_.rejoin_points.at(id.index).kept) {
    text_.DefineAhead(value);
  }
}

void Reconvergence::WriteTest() {
  needs_reconvergence_ = true;
  text_.Line("if (stopped[meeting] != 0u) return;");
  text_.Line("meeting ^= 1u;");
}

}  // namespace hpvm::opencl
