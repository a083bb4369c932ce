// SPDX-License-Identifier: Apache-2.0
// Traps in kernels with barriers. An instance that traps sets its group's flag and continues from its rejoin point
// (compiler/back/gpu/trap_route.h). Either all instances of the group wait at that rejoin point and return if the flag
// is set, or they do so after their next barrier. Two flags alternate.
//
// If traps jump to a rejoin point, the operations before it are in a switch that they can leave; values that are used
// after it pass through variables.

#include "compiler/back/gpu/buffer_fences.h"
#include "compiler/back/vulkan/control.h"

namespace hpvm::vulkan {

Reconvergence::Reconvergence(Variant& variant, Values& values, Jumps& jumps)
    : Room(variant), values_(values), jumps_(jumps) {
  if (v_.plan.trap_exit != gpu::TrapExit::kPostpone) {
    return;
  }
  routes_ = gpu::FindTrapRoutes(v_.module, [&](ir::OpId id) { return gpu::MayTrap(v_.module, id, v_.OmitsCheck(id)); });
  fences_ = gpu::FindBufferFences(v_.module);
  postpones_ = !routes_.rejoin_points.empty();  // Otherwise a trap just ends the instance.
}

void Reconvergence::Declare() {
  if (postpones_) {
    trap_flags_ = w.GlobalVariable(spv::StorageClassWorkgroup, w.Array(w.Int(32), 2));
    parity_ = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), w.U32(0));
  }
}

void Reconvergence::ClearFlags(SpvId word, SpvId index) {
  v_.Use(trap_flags_);
  c.If(c.Equal(index, c.K(0)), [&] {
    for (uint32_t i = 0; i < 2; ++i) {
      c.Store(w.Op(spv::OpAccessChain, word, {trap_flags_, w.U32(i)}), c.K(0));
    }
    return true;
  });
}

void Reconvergence::Pass(std::span<const ir::OpId> ops, size_t index) {
  if (postpones_) {
    MeetAt(ops[index]);
    OpenReconvergence(ops[index]);
  }
}

bool Reconvergence::Leave(const ir::Op& op) {
  if (!postpones_) {
    return false;
  }
  const ir::OpId rejoin = routes_.rejoin[static_cast<uint32_t>(&op - v_.f.ops.data())];
  if (!rejoin.valid()) {
    return false;
  }
  v_.Use(trap_flags_);
  v_.Use(parity_);
  const SpvId pointer = w.Pointer(spv::StorageClassWorkgroup, w.Int(32));
  const SpvId parity = c.Load(c.U32(), parity_);
  c.Store(w.Op(spv::OpAccessChain, pointer, {trap_flags_, parity}), c.K(1));
  jumps_.JumpTo({reconvergence_.at(rejoin.index).frame, false});
  return true;
}

void Reconvergence::OpenReconvergence(ir::OpId first) {
  const ir::OpId id = routes_.rejoin_after[first.index];
  if (!id.valid()) {
    return;
  }
  const gpu::RejoinPoint& rejoin = routes_.rejoin_points.at(id.index);
  ReconvergencePoint& point = reconvergence_[id.index];
  for (const ir::ValueId value : rejoin.kept) {
    const ir::Type type = v_.f.type_of(value);
    point.variables.push_back(w.LocalVariable(v_.m.TypeOf(type)));
    if (rejoin.defines) {
      c.Store(point.variables.back(), v_.K(type, 0));
    }
  }
  point.frame = jumps_.OpenSwitch(ir::OpId{});
  point.is_open = true;
}

void Reconvergence::MeetAt(ir::OpId id) {
  const auto found = reconvergence_.find(id.index);
  if (found == reconvergence_.end() || !found->second.is_open) {
    return;
  }
  const gpu::RejoinPoint& rejoin = routes_.rejoin_points.at(id.index);
  const std::vector<SpvId>& variables = found->second.variables;
  for (size_t i = 0; i < variables.size(); ++i) {
    c.Store(variables[i], values_.Of(rejoin.kept[i]));
  }
  jumps_.FallOut();
  found->second.is_open = false;
  jumps_.CloseFrame();
  for (size_t i = 0; i < variables.size(); ++i) {
    values_.Set(rejoin.kept[i], c.Load(v_.m.TypeOf(v_.f.type_of(rejoin.kept[i])), variables[i]));
    values_.SetCondition(rejoin.kept[i], 0);
  }
  if (rejoin.waits) {
    EmitGroupBarrier();
    EmitFlagTest();
  }
}

// After a barrier: returns if an instance of the group has trapped since the last test.
void Reconvergence::EmitFlagTest() {
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

void Reconvergence::EmitBarrier(ir::OpId id) {
  const bool tests = postpones_ && routes_.tests[id.index];
  EmitControlBarrier(tests || v_.plan.local_bytes != 0, fences_[id.index]);
  if (tests) {
    EmitFlagTest();
  }
}

// Control does not reach the operations after `from`, except from traps on their way to a rejoin point.
void Reconvergence::SkipRest(std::span<const ir::OpId> ops, size_t from) {
  for (size_t i = from + 1; i < ops.size() && postpones_; ++i) {
    const auto found = reconvergence_.find(ops[i].index);
    if (found == reconvergence_.end() || !found->second.is_open) {
      continue;
    }
    found->second.is_open = false;
    if (jumps_.CloseFrame()) {
      EmitGroupBarrier();
      EmitFlagTest();
      w.Do(spv::OpReturn, {});  // Only trapped instances get here.
    }
    return;
  }
}

void Reconvergence::EmitGroupBarrier() { EmitControlBarrier(/*orders_group=*/true, /*orders_buffers=*/false); }

void Reconvergence::EmitControlBarrier(bool orders_group, bool orders_buffers) {
  const uint32_t semantics = (orders_group || orders_buffers ? spv::MemorySemanticsAcquireReleaseMask : 0u) |
                             (orders_buffers ? spv::MemorySemanticsUniformMemoryMask : 0u) |
                             (orders_group ? spv::MemorySemanticsWorkgroupMemoryMask : 0u);
  w.Do(spv::OpControlBarrier, {c.K(spv::ScopeWorkgroup), c.K(spv::ScopeWorkgroup), c.K(semantics)});
}

}  // namespace hpvm::vulkan
