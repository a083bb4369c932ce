// SPDX-License-Identifier: Apache-2.0
// Traps in kernels with barriers. An instance that traps sets its group's flag and goes on from its place
// (compiler/back/gpu/trap_route.h), where all instances of the group wait and return if the flag is set, or behind
// which they do so at their next barrier. Two flags take turns.
//
// Where traps go to a place, the operations in front of it stand in a switch that they can leave; values that are
// used behind it pass through variables.

#include "compiler/back/gpu/buffer_fences.h"
#include "compiler/back/vulkan/control.h"

namespace hpvm::vulkan {

Meetings::Meetings(Variant& variant, Values& values, Jumps& jumps) : Room(variant), values_(values), jumps_(jumps) {
  if (v_.plan.trap_exit != gpu::TrapExit::kPostpone) {
    return;
  }
  routes_ = gpu::FindTrapRoutes(v_.module, [&](ir::OpId id) { return gpu::MayTrap(v_.module, id, v_.OmitsCheck(id)); });
  fences_ = gpu::FindBufferFences(v_.module);
  postpones_ = !routes_.places.empty();  // Else whatever traps, if anything, just ends.
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
    MeetAt(ops[index]);
    OpenMeeting(ops[index]);
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

void Meetings::OpenMeeting(ir::OpId first) {
  const ir::OpId id = routes_.place_behind[first.index];
  if (!id.valid()) {
    return;
  }
  const gpu::TrapPlace& place = routes_.places.at(id.index);
  Meeting& meeting = meetings_[id.index];
  for (const ir::ValueId value : place.kept) {
    const ir::Type type = v_.f.type_of(value);
    meeting.variables.push_back(w.LocalVariable(v_.m.TypeOf(type)));
    if (place.defines) {
      c.Store(meeting.variables.back(), v_.K(type, 0));
    }
  }
  meeting.frame = jumps_.OpenSwitch(ir::OpId{});
  meeting.is_open = true;
}

void Meetings::MeetAt(ir::OpId id) {
  const auto found = meetings_.find(id.index);
  if (found == meetings_.end() || !found->second.is_open) {
    return;
  }
  const gpu::TrapPlace& place = routes_.places.at(id.index);
  const std::vector<SpvId>& variables = found->second.variables;
  for (size_t i = 0; i < variables.size(); ++i) {
    c.Store(variables[i], values_.Of(place.kept[i]));
  }
  jumps_.FallOut();
  found->second.is_open = false;
  jumps_.CloseFrame();
  for (size_t i = 0; i < variables.size(); ++i) {
    values_.Set(place.kept[i], c.Load(v_.m.TypeOf(v_.f.type_of(place.kept[i])), variables[i]));
    values_.SetCondition(place.kept[i], 0);
  }
  if (place.waits) {
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

// Control does not reach what comes behind operation `from`, but by traps on the way to their place.
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
