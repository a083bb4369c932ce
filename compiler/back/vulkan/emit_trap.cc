// SPDX-License-Identifier: Apache-2.0
// A trap writes what it is into the work item's own variables and ends the kernel function, whose caller records it.
#include "compiler/back/vulkan/emitter.h"

namespace hpvm::vulkan {

using ir::TrapCode;

namespace {

// The width of a memory trap stands above its code.
uint32_t CodeWord(TrapCode code, uint32_t bytes) { return bytes << 16 | static_cast<uint32_t>(code); }

}  // namespace

void KernelEmitter::TrapIf(SpvId condition, TrapCode code, const ir::Op& op, const MakeValue& address,
                           uint32_t bytes) {
  c.If(condition, [&] {
    TrapNow(code, op, address ? address() : 0, bytes);
    return false;
  });
}

void KernelEmitter::TrapNow(TrapCode code, const ir::Op& op, SpvId address, uint32_t bytes) {
  TrapWith(c.K(CodeWord(code, bytes)), op, address);
}

void KernelEmitter::TrapWith(SpvId code, const ir::Op& op, SpvId address) {
  can_trap_ = true;
  const uint32_t function = op.origin != 0 ? op.origin - 1 : module_.entry.index;
  c.Store(trap_code_, code);
  c.Store(trap_source_, c.K(op.source));
  c.Store(trap_function_, c.K(function));
  c.Store(trap_address_, address != 0 ? address : c.K(0));
  for (const SpvId variable : {trap_code_, trap_source_, trap_function_, trap_address_}) {
    Use(variable);
  }
  const auto number = static_cast<uint32_t>(&op - f_.ops.data());
  for (size_t d = 0; d < 2 && options_.coarse != nullptr; ++d) {
    const uint8_t place = options_.coarse->place[number][d];
    const ir::ValueId computed = options_.coarse->computed[d];
    const SpvId known = place != CoarseModule::kComputed ? c.K(place) : computed.valid() ? ValueOf(computed) : 0;
    if (known != 0) {
      Use(trap_place_[d]);
      c.Store(trap_place_[d], known);
    }
  }
  if (postpones_ && routes_[static_cast<uint32_t>(&op - f_.ops.data())].valid()) {
    Use(trap_flags_);
    Use(parity_);
    const SpvId pointer = w.Pointer(spv::StorageClassWorkgroup, w.Int(32));
    const SpvId parity = c.Load(c.U32(), parity_);
    c.Store(w.Op(spv::OpAccessChain, pointer, {trap_flags_, parity}), c.K(1));
  }
  if (postpones_) {
    const auto index = static_cast<uint32_t>(&op - f_.ops.data());
    if (const ir::OpId anchor = routes_[index]; anchor.valid()) {
      return JumpTo({meetings_.at(anchor.index).frame, false});
    }
  }
  w.Do(spv::OpReturn, {});
}

}  // namespace hpvm::vulkan
