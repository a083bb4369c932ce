// SPDX-License-Identifier: Apache-2.0
// Kernels with barriers on processors, in steps.
//
// PoCL makes loops over a group's instances between barriers. Where a barrier is not reached on every way through the
// kernel, PoCL 3.1 forms a loop for each way out of the stretch, lets the first instance choose one for all, and so
// computes wrongly as soon as instances part before they join again. So such a kernel has a single barrier, in a single
// loop around everything: an instance that comes to a barrier notes the step at which it goes on, and waits there.
// Loops that have barriers go around through it as well, as PoCL does not take loops that are entered in the middle.
//
// The loop ends when no instance goes on. Three words of group memory take turns: one is written before the barrier and
// read behind it, the next one is written then, the third is cleared, which nobody looks at between these barriers.
#include "compiler/back/opencl/kernel_writer.h"
#include "compiler/ir/spelling.h"
#include "compiler/ir/walk.h"

namespace hpvm::opencl {
namespace {

using ir::Opcode;

constexpr std::string_view kEnded = "0xffffffffu";

}  // namespace

void KernelWriter::PlanSteps() {
  has_barrier_.resize(function_.ops.size());
  std::vector<std::pair<OpId, OpId>> owned;  // An operation and the construct that it is in.
  bool is_conditional = false;
  ir::ForEachOp(function_, [&](OpId id) {
    const Op& op = function_.op(id);
    has_barrier_[id.index] = op.code == Opcode::kBarrier;
    // Who traps keeps the others from what follows.
    is_conditional = is_conditional || (routes_[id.index].valid() && !OmitsCheck(id));
    const auto own = [&](ir::RegionId region) {
      for (const OpId inner : function_.region(region).ops) {
        owned.emplace_back(inner, id);
        is_conditional = is_conditional || function_.op(inner).code == Opcode::kReturn;
      }
    };
    if (ir::OwnsRegions(op.code)) {
      own(op.body);
      if (op.code == Opcode::kIf) {
        own(op.otherwise);
      }
    }
  });
  // Inner operations stand behind those around them.
  for (size_t i = owned.size(); i-- > 0;) {
    const auto [inner, owner] = owned[i];
    has_barrier_[owner.index] = has_barrier_[owner.index] || has_barrier_[inner.index];
    is_conditional = is_conditional || has_barrier_[inner.index];
  }
  if (!is_conditional) {
    return;
  }
  by_steps_ = true;
  routes_.clear();
}

uint32_t KernelWriter::BeginStep() {
  Label(Cat("step", ++steps_));
  return steps_;
}

void KernelWriter::WaitForStep(uint32_t step) { Line("step = ", step, "u; goto wait;"); }

void KernelWriter::EndInstance() {
  ends_early_ = true;
  Line("goto done;");
}

std::string KernelWriter::StepsHead() {
  Line("uint step = 0u;  // Where the instance goes on behind the barrier; all bits: it has ended.");
  Line("uint turn = 0u;");
  Line("for (;;) {");
  ++indent_;
  Line("switch (step) {");
  ++indent_;
  for (uint32_t step = 1; step <= steps_; ++step) {
    Line("case ", step, "u: goto step", step, ";");
  }
  Line("case ", kEnded, ": goto wait;");
  Line("default: break;");
  --indent_;
  Line("}");
  --indent_;
  return std::move(out_);
}

std::string KernelWriter::StepsEnd() {
  if (ends_early_) {
    Label("done");
  }
  Line("step = ", kEnded, ";");
  Label("wait");
  Line("if (step != ", kEnded, ") running[turn] = 1u;");
  Line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);");
  Line("if (running[turn] == 0u) break;");
  if (needs_meeting_) {
    Line("if (stopped != 0u) step = ", kEnded, ";");
  }
  Line("turn = turn == 2u ? 0u : turn + 1u;");
  Line("running[turn == 2u ? 0u : turn + 1u] = 0u;");
  Line("}");
  return std::move(out_);
}

}  // namespace hpvm::opencl
