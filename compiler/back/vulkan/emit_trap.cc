// SPDX-License-Identifier: Apache-2.0
// A trap writes its record into the work item's variables and ends the kernel function, whose caller records it.
#include "compiler/back/vulkan/control.h"

namespace hpvm::vulkan {

using Kind = GpuArgument::Kind;

namespace {

constexpr uint32_t kRecordWords = sizeof(GpuTrapRecord) / 4;

// The width of a memory trap is in the bits above its code.
uint32_t CodeWord(TrapCode code, uint32_t bytes) { return bytes << 16 | static_cast<uint32_t>(code); }

}  // namespace

void Traps::Declare() {
  const SpvId zero = w.U32(0);
  for (SpvId* variable : {&trap_code_, &trap_source_, &trap_function_, &trap_address_}) {
    *variable = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), zero);
  }
  for (size_t d = 0; d < 2 && v_.options.coarse != nullptr; ++d) {
    trap_lane_[d] = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), zero);
  }
}

void Traps::TrapIf(SpvId condition, TrapCode code, const ir::Op& op, const MakeValue& address, uint32_t bytes) {
  c.If(condition, [&] {
    TrapNow(code, op, address ? address() : 0, bytes);
    return false;
  });
}

void Traps::TrapNow(TrapCode code, const ir::Op& op, SpvId address, uint32_t bytes) {
  TrapWith(c.K(CodeWord(code, bytes)), op, address);
}

void Traps::TrapWith(SpvId code, const ir::Op& op, SpvId address) {
  can_trap_ = true;
  const uint32_t function = op.origin != 0 ? op.origin - 1 : v_.module.entry.index;
  c.Store(trap_code_, code);
  c.Store(trap_source_, c.K(op.source));
  c.Store(trap_function_, c.K(function));
  c.Store(trap_address_, address != 0 ? address : c.K(0));
  for (const SpvId variable : {trap_code_, trap_source_, trap_function_, trap_address_}) {
    v_.Use(variable);
  }
  const auto number = static_cast<uint32_t>(&op - v_.f.ops.data());
  for (size_t d = 0; d < 2 && v_.options.coarse != nullptr; ++d) {
    const uint8_t lane = v_.options.coarse->lane[number][d];
    const ir::ValueId computed = v_.options.coarse->computed[d];
    const SpvId known = lane != pass::CoarseModule::kComputed ? c.K(lane) : computed.valid() ? values_.Of(computed) : 0;
    if (known != 0) {
      v_.Use(trap_lane_[d]);
      c.Store(trap_lane_[d], known);
    }
  }
  if (detour_ == nullptr || !detour_->Leave(op)) {
    w.Do(spv::OpReturn, {});
  }
}

// The first instance that claims the record fills it in.
void Traps::EmitRecord(SpvId code) {
  const SpvId records = v_.m.TrapRecords();
  v_.Use(records);
  const SpvId pointer = w.Pointer(spv::StorageClassStorageBuffer, w.Int(32));
  const SpvId index = v_.Argument32(Kind::kTrapIndex, 0);
  const SpvId first = c.Mul(index, c.K(kRecordWords));
  const auto word = [&](uint32_t i) {
    return w.Op(spv::OpAccessChain, pointer, {records, w.U32(0), c.AddK(first, i)});
  };
  const SpvId relaxed = c.K(spv::MemorySemanticsMaskNone);
  const SpvId old =
      w.Op(spv::OpAtomicCompareExchange, c.U32(), {word(0), c.K(spv::ScopeDevice), relaxed, relaxed, c.K(1), c.K(0)});
  c.If(c.Equal(old, c.K(0)), [&] {
    c.Store(word(1), code);
    for (uint32_t d = 0; d < 3; ++d) {
      const SpvId id = queries_.InstanceId(d);
      const bool has_lane = d < 2 && trap_lane_[d] != 0;
      c.Store(word(2 + d), has_lane ? c.Add(id, c.Load(c.U32(), trap_lane_[d])) : id);
    }
    const std::array<SpvId, 3> from{trap_source_, trap_function_, trap_address_};
    for (uint32_t i = 0; i < 3; ++i) {
      const SpvId value = c.Load(c.U32(), from[i]);  // First, as the evaluation order of arguments is open.
      c.Store(word(5 + i), value);
    }
    return true;
  });
}

void Traps::EmitRecordIfTrapped() {
  if (!can_trap_) {
    return;
  }
  for (const SpvId variable : {trap_code_, trap_source_, trap_function_, trap_address_, trap_lane_[0], trap_lane_[1]}) {
    if (variable != 0) {
      v_.Use(variable);
    }
  }
  const SpvId code = c.Load(c.U32(), trap_code_);
  c.If(c.Differ(code, c.K(0)), [&] {
    EmitRecord(code);
    return true;
  });
}

}  // namespace hpvm::vulkan
