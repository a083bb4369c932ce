// SPDX-License-Identifier: Apache-2.0
// Traps in kernels with barriers. An instance that traps sets its group's flag and goes to its anchor
// (compiler/back/gpu/trap_route.h), in front of which all instances of the group wait and return if the flag is set.
// Two flags take turns: an instance is at most one anchor ahead of another, so a flag is only read for what was set
// before that anchor.
//
// Where traps go to an anchor, the operations in front of it stand in a switch that they can leave; values that are
// used behind it pass through variables.
#include <algorithm>

#include "compiler/back/gpu/trap_route.h"
#include "compiler/back/vulkan/emitter.h"
#include "compiler/ir/walk.h"

namespace hpvm::vulkan {

using ir::Opcode;

void KernelEmitter::PlanMeetings() {
  postpones_ = plan_.trap_exit == gpu::TrapExit::kPostpone;
  if (!postpones_) {
    return;
  }
  routes_ = gpu::FindTrapRoutes(module_);
  users_.resize(f_.values.size());
  ir::ForEachOp(f_, [&](ir::OpId id) {
    for (const ir::ValueId value : f_.operands_of(f_.op(id))) {
      users_[value.index].push_back(id);
    }
    const ir::OpId anchor = routes_[id.index];
    if (!CanTrap(id) || !anchor.valid()) {
      return;
    }
    // The trap, or what it stands in, in the anchor's region.
    ir::OpId first = id;
    while (region_of_[first.index] != region_of_[anchor.index]) {
      first = f_.region(region_of_[first.index]).owner;
    }
    Meeting& meeting = meetings_[anchor.index];
    if (!meeting.first.valid() || place_in_region_[first.index] < place_in_region_[meeting.first.index]) {
      meeting.first = first;
    }
  });
  if (meetings_.empty()) {
    postpones_ = false;  // Whatever traps, if anything, just ends.
  }
}

void KernelEmitter::OpenMeeting(std::span<const ir::OpId> ops, size_t index) {
  for (auto& [anchor, meeting] : meetings_) {
    if (meeting.first == ops[index]) {
      OpenSwitch(ir::OpId{});
      meeting.frame = frames_.size() - 1;
      meeting.is_open = true;
    }
  }
}

// Whether something uses it that is not in [.., index) of the region.
bool KernelEmitter::IsUsedBehind(ir::ValueId value, ir::RegionId region, size_t index) const {
  return std::any_of(users_[value.index].begin(), users_[value.index].end(), [&](ir::OpId user) {
    while (region_of_[user.index] != region) {
      user = f_.region(region_of_[user.index]).owner;
    }
    return place_in_region_[user.index] >= index;
  });
}

void KernelEmitter::MeetAt(std::span<const ir::OpId> ops, size_t index) {
  const auto found = meetings_.find(ops[index].index);
  if (found == meetings_.end() || !found->second.is_open) {
    return;
  }
  const ir::RegionId region = region_of_[ops[index].index];
  const size_t first = place_in_region_[found->second.first.index];
  std::vector<ir::ValueId> kept;
  for (size_t i = first; i < index; ++i) {
    const ir::Op& op = f_.op(ops[i]);
    for (uint32_t r = 0; r < op.result_count; ++r) {
      const ir::ValueId value(op.first_result.index + r);
      if (IsUsedBehind(value, region, index)) {
        kept.push_back(value);
      }
    }
  }
  std::vector<SpvId> variables;
  for (const ir::ValueId value : kept) {
    variables.push_back(w.LocalVariable(m_.TypeOf(f_.type_of(value))));
    c.Store(variables.back(), values_[value.index]);
  }
  FallOut();
  found->second.is_open = false;
  CloseFrame();
  for (size_t i = 0; i < kept.size(); ++i) {
    values_[kept[i].index] = c.Load(m_.TypeOf(f_.type_of(kept[i])), variables[i]);
    conditions_[kept[i].index] = 0;
  }
  EmitControlBarrier();
  EmitFlagTest();
}

// Behind a barrier: returns if one of the group has trapped since the last test.
void KernelEmitter::EmitFlagTest() {
  Use(trap_flags_);
  Use(parity_);
  const SpvId pointer = w.Pointer(spv::StorageClassWorkgroup, w.Int(32));
  const SpvId parity = c.Load(c.U32(), parity_);
  const SpvId flag = c.Load(c.U32(), w.Op(spv::OpAccessChain, pointer, {trap_flags_, parity}));
  c.Store(parity_, c.Xor(parity, c.K(1)));
  c.If(c.Differ(flag, c.K(0)), [&] {
    w.Do(spv::OpReturn, {});
    return false;
  });
}

// A meeting in front of a barrier has waited already.
void KernelEmitter::EmitBarrier(ir::OpId id) {
  if (meetings_.find(id.index) == meetings_.end()) {
    EmitControlBarrier();
  }
}

}  // namespace hpvm::vulkan
