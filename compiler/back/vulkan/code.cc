// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/vulkan/code.h"

namespace hpvm::vulkan {

SpvId Code::Add(SpvId a, SpvId b) {
  uint32_t x = 0, y = 0;
  const bool a_known = w.IsU32(a, &x), b_known = w.IsU32(b, &y);
  if (a_known && b_known) {
    return K(x + y);
  }
  if (a_known && x == 0) {
    return b;
  }
  return b_known && y == 0 ? a : w.Op(spv::OpIAdd, U32(), {a, b});
}

SpvId Code::ShrK(SpvId a, uint32_t b) {
  uint32_t x = 0;
  return w.IsU32(a, &x) ? K(x >> b) : Shr(a, K(b));
}

void Code::If(SpvId condition, const std::function<bool()>& then) {
  const SpvId yes = w.NewId(), merge = w.NewId();
  w.Do(spv::OpSelectionMerge, {merge, spv::SelectionControlMaskNone});
  w.Do(spv::OpBranchConditional, {condition, yes, merge});
  w.Label(yes);
  if (then()) {
    w.Do(spv::OpBranch, {merge});
  }
  w.Label(merge);
}

void Code::IfElse(SpvId condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  const SpvId yes = w.NewId(), no = w.NewId(), merge = w.NewId();
  w.Do(spv::OpSelectionMerge, {merge, spv::SelectionControlMaskNone});
  w.Do(spv::OpBranchConditional, {condition, yes, no});
  w.Label(yes);
  then();
  w.Do(spv::OpBranch, {merge});
  w.Label(no);
  otherwise();
  w.Do(spv::OpBranch, {merge});
  w.Label(merge);
}

SpvId Code::For(SpvId first, SpvId end, SpvId step, const std::function<void(SpvId)>& body) {
  const SpvId header = w.NewId(), test = w.NewId(), inside = w.NewId(), next = w.NewId(), merge = w.NewId();
  const SpvId index = w.LocalVariable(U32());
  Store(index, first);
  w.Do(spv::OpBranch, {header});
  w.Label(header);
  w.Do(spv::OpLoopMerge, {merge, next, spv::LoopControlMaskNone});
  w.Do(spv::OpBranch, {test});
  w.Label(test);
  const SpvId i = Load(U32(), index);
  w.Do(spv::OpBranchConditional, {Below(i, end), inside, merge});
  w.Label(inside);
  body(i);
  w.Do(spv::OpBranch, {next});
  w.Label(next);
  Store(index, Add(i, step));
  w.Do(spv::OpBranch, {header});
  w.Label(merge);
  return index;
}

}  // namespace hpvm::vulkan
