// SPDX-License-Identifier: Apache-2.0
// Which dispatch of a submission writes which trap record, and what the records say when the submission ends.
//
// A record is as hostile as the kernel that could write it: any bits give a status. The width of a memory access lies
// in the upper half of GpuTrapRecord::code; 0 when it is not known.
#ifndef HPVMD_BACKENDS_GPU_TRAP_RECORDS_H_
#define HPVMD_BACKENDS_GPU_TRAP_RECORDS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backends/contract/device.h"

namespace hpvm::gpu {

// The records of one submission, numbered from 0 in the order of its dispatches.
class TrapSlots {
 public:
  // The record of one more dispatch, for all its parts. The executable is borrowed until the submission's end.
  uint32_t Take(const DispatchCommand& dispatch);
  uint32_t count() const { return static_cast<uint32_t>(slots_.size()); }
  uint64_t bytes() const { return slots_.size() * sizeof(GpuTrapRecord); }

  // OK when no record is claimed. Else kAborted for the first dispatch whose record is, as those behind it may have run
  // on what it left; `failure` (may be null) gets its node and report. `records`: count() of them, read back.
  Status Check(std::span<const GpuTrapRecord> records, Failure* failure) const;

 private:
  struct Slot {
    const Executable* executable = nullptr;
    uint32_t node = 0;
  };
  std::vector<Slot> slots_;
};

// What a claimed record says; codes that do not exist become kUnreachable.
ir::TrapReport ReadTrapRecord(const GpuTrapRecord& record);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_TRAP_RECORDS_H_
