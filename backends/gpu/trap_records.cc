// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/trap_records.h"

#include <algorithm>

#include "backends/shared/host_queue.h"
#include "compiler/api/source_text.h"
#include "compiler/ir/loops_cut.h"

namespace hpvm::gpu {
namespace {

// kStopped is reported only by the host.
bool IsKernelTrap(uint32_t code) {
  return code == static_cast<uint32_t>(ir::TrapCode::kWrongProof) || code == static_cast<uint32_t>(ir::kLoopsCut) ||
         (code >= static_cast<uint32_t>(ir::TrapCode::kUnreachable) &&
          code <= static_cast<uint32_t>(ir::TrapCode::kWaitsForever));
}

}  // namespace

uint32_t TrapSlots::Take(const DispatchCommand& dispatch) {
  slots_.push_back({dispatch.executable, dispatch.node});
  return count() - 1;
}

Status TrapSlots::Check(std::span<const GpuTrapRecord> records, Failure* failure) const {
  HPVMD_CHECK(records.size() >= slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (records[i].state == 0) [[likely]] {
      continue;
    }
    const ir::TrapReport trap = ReadTrapRecord(records[i]);
    if (failure != nullptr) {
      *failure = {slots_[i].node, trap};
    }
    return backends::TrapStatus(trap, DescribeTrap(trap, slots_[i].executable->artifact()));
  }
  return absl::OkStatus();
}

ir::TrapReport ReadTrapRecord(const GpuTrapRecord& record) {
  ir::TrapReport trap;
  const uint32_t code = record.code & 0xffffu;
  trap.code = IsKernelTrap(code) ? static_cast<ir::TrapCode>(code) : ir::TrapCode::kUnreachable;
  std::copy(record.instance.begin(), record.instance.end(), trap.instance.begin());
  trap.function = record.function;
  trap.source = record.source;
  trap.address = record.address;
  trap.bytes = record.code >> 16;
  return trap;
}

}  // namespace hpvm::gpu
