// SPDX-License-Identifier: Apache-2.0
// Jumps over several constructs; emitter.h says how.
#include <algorithm>

#include "compiler/back/vulkan/emitter.h"

namespace hpvm::vulkan {

// The switch or loop of an operation; never the selection of an `if`, which has one around it where it needs one.
size_t KernelEmitter::FrameOf(ir::OpId op) const {
  for (size_t i = frames_.size(); i-- > 0;) {
    if (frames_[i].op == op && frames_[i].kind != Frame::Kind::kSelection) {
      return i;
    }
  }
  return 0;
}

SpvId KernelEmitter::Selector() {
  if (selector_ == 0) {
    selector_ = w.LocalVariable(c.U32(), c.K(0));
  }
  return selector_;
}

// From anywhere: the innermost loop, across switches and selections; from outside a loop nested in it, the innermost
// switch.
KernelEmitter::Goal KernelEmitter::NextHop(Goal goal) const {
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

SpvId KernelEmitter::Arrive(Goal hop, Goal goal, bool has_name) {
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

void KernelEmitter::JumpTo(Goal goal) {
  const Goal hop = NextHop(goal);
  const bool crosses = hop.frame != goal.frame;
  if (crosses) {
    c.Store(Selector(), c.K(NameOf(goal)));
  }
  MarkLeft(hop);
  w.Do(spv::OpBranch, {Arrive(hop, goal, false)});
}

void KernelEmitter::MarkLeft(Goal hop) {
  const Frame& frame = frames_[hop.frame];
  if (cuts_loops_ && frame.kind == Frame::Kind::kLoop && !hop.is_continue) {
    // Volatile, as all that concerns the word: a compiler that hands the name on would see no loop that was cut.
    w.Do(spv::OpStore, {LeftSlot(), c.K(frame.name), spv::MemoryAccessVolatileMask});
  }
}

// The work item's own word.
SpvId KernelEmitter::LeftSlot() {
  const SpvId variable = m_.BuiltIn(spv::BuiltInLocalInvocationIndex);
  Use(variable);
  Use(left_loops_);
  const SpvId index = c.Load(c.U32(), variable);
  return w.Op(spv::OpAccessChain, w.Pointer(spv::StorageClassWorkgroup, c.U32()), {left_loops_, index});
}

bool KernelEmitter::CloseFrame() {
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  w.Label(frame.merge);
  if (!frame.is_reached && !frame.comes_with_name && frame.crossing.empty()) {
    if (cuts_loops_ && frame.kind == Frame::Kind::kLoop) {
      TrapNow(ir::kLoopsCut, f_.op(frame.op));  // Nothing leaves the loop, but the driver ends it.
    } else {
      w.Do(spv::OpUnreachable, {});
    }
    return false;
  }
  if (cuts_loops_ && frame.kind == Frame::Kind::kLoop) {
    const SpvId left = w.Op(spv::OpLoad, c.U32(), {LeftSlot(), spv::MemoryAccessVolatileMask});
    TrapIf(c.Differ(left, c.K(frame.name)), ir::kLoopsCut, f_.op(frame.op));
  }
  return SendOn(frame);
}

// Behind the merge: who is on the way to something further out goes on. False if nobody stays.
bool KernelEmitter::SendOn(const Frame& frame) {
  if (frame.crossing.empty()) {
    if (frame.comes_with_name) {
      c.Store(Selector(), c.K(0));
    }
    return true;
  }
  // By where they go next.
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
