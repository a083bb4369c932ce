// SPDX-License-Identifier: Apache-2.0
// Traps in kernels with barriers. An instance that traps sets its group's flag and goes on from its place
// (compiler/back/gpu/trap_route.h), where all instances of the group wait and return if the flag is set, or behind
// which they do so at their next barrier. Two flags take turns.
//
// Where traps go to a place, the operations in front of it stand in a switch that they can leave; values that are
// used behind it pass through variables, but for constants, which whoever has trapped has as well.
#include <algorithm>

#include "compiler/back/gpu/buffer_fences.h"
#include "compiler/back/vulkan/control.h"
#include "compiler/ir/walk.h"

namespace hpvm::vulkan {

using ir::Opcode;

Meetings::Meetings(Variant& variant, Values& values, const ControlPlan& control, Jumps& jumps)
    : Room(variant), values_(values), control_(control), jumps_(jumps) {
  postpones_ = v_.plan.trap_exit == gpu::TrapExit::kPostpone;
  if (!postpones_) {
    return;
  }
  routes_ = gpu::FindTrapRoutes(v_.module, [&](ir::OpId id) { return gpu::MayTrap(v_.module, id, v_.OmitsCheck(id)); });
  fences_ = gpu::FindBufferFences(v_.module);
  users_.resize(v_.f.values.size());
  ir::ForEachOp(v_.f, [&](ir::OpId id) {
    for (const ir::ValueId value : v_.f.operands_of(v_.f.op(id))) {
      users_[value.index].push_back(id);
    }
    const ir::OpId place = routes_.place[id.index];
    if (!place.valid()) {
      return;
    }
    // The trap, or what it stands in, in the place's region.
    ir::OpId first = id;
    while (control_.RegionOf(first) != control_.RegionOf(place)) {
      first = v_.f.region(control_.RegionOf(first)).owner;
    }
    Meeting& meeting = meetings_[place.index];
    if (!meeting.first.valid() || control_.PlaceOf(first) < control_.PlaceOf(meeting.first)) {
      meeting.first = first;
    }
  });
  if (meetings_.empty()) {
    postpones_ = false;  // Whatever traps, if anything, just ends.
  }
}

void Meetings::Declare() {
  if (postpones_) {
    trap_flags_ = w.GlobalVariable(spv::StorageClassWorkgroup, w.Array(w.Int(32), 2));
    parity_ = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), w.U32(0));
  }
}

void Meetings::ClearFlags(SpvId word, SpvId index) {
  v_.Use(trap_flags_);
  c.If(c.Equal(index, c.K(0)), [&] {
    for (uint32_t i = 0; i < 2; ++i) {
      c.Store(w.Op(spv::OpAccessChain, word, {trap_flags_, w.U32(i)}), c.K(0));
    }
    return true;
  });
}

void Meetings::Pass(std::span<const ir::OpId> ops, size_t index) {
  if (postpones_) {
    MeetAt(ops, index);
    OpenMeeting(ops, index);
  }
}

bool Meetings::Leave(const ir::Op& op) {
  if (!postpones_) {
    return false;
  }
  const ir::OpId place = routes_.place[static_cast<uint32_t>(&op - v_.f.ops.data())];
  if (!place.valid()) {
    return false;
  }
  v_.Use(trap_flags_);
  v_.Use(parity_);
  const SpvId pointer = w.Pointer(spv::StorageClassWorkgroup, w.Int(32));
  const SpvId parity = c.Load(c.U32(), parity_);
  c.Store(w.Op(spv::OpAccessChain, pointer, {trap_flags_, parity}), c.K(1));
  jumps_.JumpTo({meetings_.at(place.index).frame, false});
  return true;
}

void Meetings::OpenMeeting(std::span<const ir::OpId> ops, size_t index) {
  for (auto& [place, meeting] : meetings_) {
    if (meeting.first == ops[index]) {
      meeting.frame = jumps_.OpenSwitch(ir::OpId{});
      meeting.is_open = true;
    }
  }
}

// Whether something uses it that is not in [.., index) of the region.
bool Meetings::IsUsedBehind(ir::ValueId value, ir::RegionId region, size_t index) const {
  return std::any_of(users_[value.index].begin(), users_[value.index].end(), [&](ir::OpId user) {
    while (control_.RegionOf(user) != region) {
      user = v_.f.region(control_.RegionOf(user)).owner;
    }
    return control_.PlaceOf(user) >= index;
  });
}

void Meetings::MeetAt(std::span<const ir::OpId> ops, size_t index) {
  const auto found = meetings_.find(ops[index].index);
  if (found == meetings_.end() || !found->second.is_open) {
    return;
  }
  const ir::RegionId region = control_.RegionOf(ops[index]);
  const size_t first = control_.PlaceOf(found->second.first);
  std::vector<ir::ValueId> kept;
  for (size_t i = first; i < index; ++i) {
    const ir::Op& op = v_.f.op(ops[i]);
    for (uint32_t r = 0; r < op.result_count && op.code != Opcode::kConst; ++r) {
      const ir::ValueId value(op.first_result.index + r);
      if (IsUsedBehind(value, region, index)) {
        kept.push_back(value);
      }
    }
  }
  std::vector<SpvId> variables;
  for (const ir::ValueId value : kept) {
    variables.push_back(w.LocalVariable(v_.m.TypeOf(v_.f.type_of(value))));
    c.Store(variables.back(), values_.Of(value));
  }
  jumps_.FallOut();
  found->second.is_open = false;
  jumps_.CloseFrame();
  for (size_t i = 0; i < kept.size(); ++i) {
    values_.Set(kept[i], c.Load(v_.m.TypeOf(v_.f.type_of(kept[i])), variables[i]));
    values_.SetCondition(kept[i], 0);
  }
  if (routes_.waits[ops[index].index]) {
    EmitGroupBarrier();
    EmitFlagTest();
  }
}

// Behind a barrier: returns if one of the group has trapped since the last test.
void Meetings::EmitFlagTest() {
  v_.Use(trap_flags_);
  v_.Use(parity_);
  const SpvId pointer = w.Pointer(spv::StorageClassWorkgroup, w.Int(32));
  const SpvId parity = c.Load(c.U32(), parity_);
  const SpvId flag = c.Load(c.U32(), w.Op(spv::OpAccessChain, pointer, {trap_flags_, parity}));
  c.Store(parity_, c.Xor(parity, c.K(1)));
  c.If(c.Differ(flag, c.K(0)), [&] {
    w.Do(spv::OpReturn, {});
    return false;
  });
}

void Meetings::EmitBarrier(ir::OpId id) {
  const bool tests = postpones_ && routes_.tests[id.index];
  EmitControlBarrier(tests || v_.plan.local_bytes != 0, fences_[id.index]);
  if (tests) {
    EmitFlagTest();
  }
}

// What comes behind operation `from` is not reached, but by traps on the way to their place.
void Meetings::SkipRest(std::span<const ir::OpId> ops, size_t from) {
  for (size_t i = from + 1; i < ops.size() && postpones_; ++i) {
    const auto found = meetings_.find(ops[i].index);
    if (found == meetings_.end() || !found->second.is_open) {
      continue;
    }
    found->second.is_open = false;
    if (jumps_.CloseFrame()) {
      EmitGroupBarrier();
      EmitFlagTest();
      w.Do(spv::OpReturn, {});  // Who gets here has trapped.
    }
    return;
  }
}

void Meetings::EmitGroupBarrier() { EmitControlBarrier(/*orders_group=*/true, /*orders_buffers=*/false); }

void Meetings::EmitControlBarrier(bool orders_group, bool orders_buffers) {
  const uint32_t semantics = (orders_group || orders_buffers ? spv::MemorySemanticsAcquireReleaseMask : 0u) |
                             (orders_buffers ? spv::MemorySemanticsUniformMemoryMask : 0u) |
                             (orders_group ? spv::MemorySemanticsWorkgroupMemoryMask : 0u);
  w.Do(spv::OpControlBarrier, {c.K(spv::ScopeWorkgroup), c.K(spv::ScopeWorkgroup), c.K(semantics)});
}

}  // namespace hpvm::vulkan
