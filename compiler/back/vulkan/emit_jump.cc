// SPDX-License-Identifier: Apache-2.0
// Constructs and jumps over several of them; control.h describes the scheme.
#include <algorithm>

#include "compiler/back/vulkan/control.h"

namespace hpvm::vulkan {

namespace {

// SPIR-V limits nesting to 1023 constructs; checks nest a little further inside.
constexpr size_t kFramesMax = 1000;

}  // namespace

void Jumps::Declare() {
  if (v_.cuts_loops && control_.HasLoops()) {
    left_loops_ = w.GlobalVariable(spv::StorageClassWorkgroup, w.Array(w.Int(32), v_.m.target.group_size_max));
  }
}

void Jumps::Push(Frame frame) {
  frames_.push_back(std::move(frame));
  if (frames_.size() > kFramesMax) {
    v_.Refuse("The kernel's control nests deeper than the limit (" + std::to_string(kFramesMax) + " constructs).");
  }
}

size_t Jumps::OpenSwitch(ir::OpId op) {
  Frame frame;
  frame.kind = Frame::Kind::kSwitch;
  frame.op = op;
  frame.merge = w.NewId();
  frame.name = next_name_++;
  const SpvId inside = w.NewId();
  w.Do(spv::OpSelectionMerge, {frame.merge, spv::SelectionControlMaskNone});
  w.Do(spv::OpSwitch, {c.K(0), inside});
  w.Label(inside);
  Push(std::move(frame));
  return frames_.size() - 1;
}

void Jumps::OpenLoop(ir::OpId id) {
  Frame frame;
  frame.kind = Frame::Kind::kLoop;
  frame.op = id;
  frame.merge = w.NewId();
  frame.next = w.NewId();
  frame.name = next_name_++;
  frame.header = w.NewId();
  const SpvId inside = w.NewId();
  if (v_.cuts_loops) {
    c.Store(LeftSlot(), c.K(0));
  }
  w.Do(spv::OpBranch, {frame.header});
  w.Label(frame.header);
  w.Do(spv::OpLoopMerge, {frame.merge, frame.next, spv::LoopControlMaskNone});
  w.Do(spv::OpBranch, {inside});
  w.Label(inside);
  Push(std::move(frame));
}

SpvId Jumps::OpenSelection(ir::OpId id, SpvId condition) {
  Frame frame;
  frame.kind = Frame::Kind::kSelection;
  frame.op = id;
  frame.merge = w.NewId();
  const SpvId yes = w.NewId(), no = w.NewId();
  w.Do(spv::OpSelectionMerge, {frame.merge, spv::SelectionControlMaskNone});
  w.Do(spv::OpBranchConditional, {condition, yes, no});
  frames_.push_back(std::move(frame));
  w.Label(yes);
  return no;
}

void Jumps::FallOut() {
  frames_.back().is_reached = true;
  w.Do(spv::OpBranch, {frames_.back().merge});
}

// Compilers drop the code after a loop without exits, and then a cut by the driver would go unnoticed. They also
// detect such loops where an exit condition never changes. So each loop gets an exit on a condition that never holds
// and that no compiler knows.
void Jumps::GoAround() {
  const Frame& frame = frames_.back();
  w.Label(frame.next);
  if (frame.goes_on_with_name) {
    c.Store(Selector(), c.K(0));
  }
  if (!v_.cuts_loops) {
    w.Do(spv::OpBranch, {frame.header});
    return;
  }
  const SpvId left = w.Op(spv::OpLoad, c.U32(), {LeftSlot(), spv::MemoryAccessVolatileMask});
  w.Do(spv::OpBranchConditional, {c.Equal(left, c.K(frame.name)), frame.merge, frame.header});
}

// Returns the switch or loop of an operation; never the selection of an `if`, which has a switch around it if needed.
size_t Jumps::FrameOf(ir::OpId op) const {
  for (size_t i = frames_.size(); i-- > 0;) {
    if (frames_[i].op == op && frames_[i].kind != Frame::Kind::kSelection) {
      return i;
    }
  }
  return 0;
}

SpvId Jumps::Selector() {
  if (selector_ == 0) {
    selector_ = w.LocalVariable(c.U32(), c.K(0));
  }
  return selector_;
}

// Reachable from anywhere: the innermost loop, across switches and selections; from outside a loop nested in it, the
// innermost switch.
Jumps::Goal Jumps::NextHop(Goal goal) const {
  std::optional<size_t> innermost_switch;
  for (size_t i = frames_.size(); i-- > 0;) {
    if (frames_[i].kind == Frame::Kind::kLoop) {
      if (i == goal.frame) {
        return goal;
      }
      if (i > goal.frame) {
        return {i, false};
      }
      break;
    }
    if (frames_[i].kind == Frame::Kind::kSwitch && !innermost_switch) {
      innermost_switch = i;
    }
  }
  return {innermost_switch.value_or(goal.frame), false};
}

SpvId Jumps::Arrive(Goal hop, Goal goal, bool has_name) {
  Frame& frame = frames_[hop.frame];
  if (hop.frame != goal.frame) {
    frame.crossing.insert({goal.frame, goal.is_continue});
    return frame.merge;
  }
  if (goal.is_continue) {
    frame.goes_on_with_name |= has_name;
    return frame.next;
  }
  (has_name ? frame.comes_with_name : frame.is_reached) = true;
  return frame.merge;
}

void Jumps::JumpTo(Goal goal) {
  const Goal hop = NextHop(goal);
  const bool crosses = hop.frame != goal.frame;
  if (crosses) {
    c.Store(Selector(), c.K(NameOf(goal)));
  }
  MarkLeft(hop);
  w.Do(spv::OpBranch, {Arrive(hop, goal, false)});
}

void Jumps::MarkLeft(Goal hop) {
  const Frame& frame = frames_[hop.frame];
  if (v_.cuts_loops && frame.kind == Frame::Kind::kLoop && !hop.is_continue) {
    // Volatile, like all accesses to the word: a compiler that forwarded the name would hide a loop that was cut.
    w.Do(spv::OpStore, {LeftSlot(), c.K(frame.name), spv::MemoryAccessVolatileMask});
  }
}

// Returns a pointer to the work item's own word.
SpvId Jumps::LeftSlot() {
  const SpvId variable = v_.m.BuiltIn(spv::BuiltInLocalInvocationIndex);
  v_.Use(variable);
  v_.Use(left_loops_);
  const SpvId index = c.Load(c.U32(), variable);
  return w.Op(spv::OpAccessChain, w.Pointer(spv::StorageClassWorkgroup, c.U32()), {left_loops_, index});
}

bool Jumps::CloseFrame() {
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  w.Label(frame.merge);
  if (!frame.is_reached && !frame.comes_with_name && frame.crossing.empty()) {
    if (v_.cuts_loops && frame.kind == Frame::Kind::kLoop) {
      traps_.TrapNow(ir::kLoopsCut, v_.f.op(frame.op));  // Nothing leaves the loop, but the driver ends it.
    } else {
      w.Do(spv::OpUnreachable, {});
    }
    return false;
  }
  if (v_.cuts_loops && frame.kind == Frame::Kind::kLoop) {
    const SpvId left = w.Op(spv::OpLoad, c.U32(), {LeftSlot(), spv::MemoryAccessVolatileMask});
    traps_.TrapIf(c.Differ(left, c.K(frame.name)), ir::kLoopsCut, v_.f.op(frame.op));
  }
  return SendOn(frame);
}

// After the merge: forwards jumps to outer targets. Returns false if no control stays.
bool Jumps::SendOn(const Frame& frame) {
  if (frame.crossing.empty()) {
    if (frame.comes_with_name) {
      c.Store(Selector(), c.K(0));
    }
    return true;
  }
  // Grouped by their next hop.
  std::map<std::pair<size_t, bool>, std::vector<Goal>> groups;
  for (const auto& [to, is_continue] : frame.crossing) {
    const Goal goal{to, is_continue};
    const Goal hop = NextHop(goal);
    groups[{hop.frame, hop.is_continue}].push_back(goal);
  }
  const bool stays = frame.is_reached || frame.comes_with_name;
  const SpvId selector = c.Load(c.U32(), Selector());
  size_t left = groups.size();
  for (const auto& [to, goals] : groups) {
    const Goal hop{to.first, to.second};
    const bool is_last = --left == 0;
    SpvId label = 0;
    for (const Goal goal : goals) {
      label = Arrive(hop, goal, true);
    }
    if (is_last && !stays) {
      MarkLeft(hop);
      w.Do(spv::OpBranch, {label});
      return false;
    }
    SpvId goes = 0;
    if (is_last) {
      goes = c.Differ(selector, c.K(0));
      if (frame.comes_with_name) {
        goes = c.Both(goes, c.Differ(selector, c.K(2 * frame.name)));
      }
    } else {
      for (const Goal goal : goals) {
        const SpvId is_it = c.Equal(selector, c.K(NameOf(goal)));
        goes = goes == 0 ? is_it : c.Either(goes, is_it);
      }
    }
    c.If(goes, [&] {
      MarkLeft(hop);
      w.Do(spv::OpBranch, {label});
      return false;
    });
  }
  if (frame.comes_with_name) {
    c.Store(Selector(), c.K(0));
  }
  return true;
}

}  // namespace hpvm::vulkan
