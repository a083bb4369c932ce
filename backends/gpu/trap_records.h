// SPDX-License-Identifier: Apache-2.0
// Assigns trap records to the dispatches of a submission, and interprets the records when the submission ends.
//
// A record is as untrusted as the kernel that could write it: any bits give a status. The width of a memory access is
// in the upper half of GpuTrapRecord::code; 0 when it is unknown.
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
  // Returns the record of one more dispatch, for all its parts. The executable is borrowed until the submission's end.
  uint32_t Take(const DispatchCommand& dispatch);
  uint32_t count() const { return static_cast<uint32_t>(slots_.size()); }
  uint64_t bytes() const { return slots_.size() * sizeof(GpuTrapRecord); }

  // Returns OK when no record is claimed, otherwise kAborted for the first dispatch whose record is, as later ones may
  // have run on its output; `failure` (may be null) receives its node and report. `records`: count() records, read
  // back.
  Status Check(std::span<const GpuTrapRecord> records, Failure* failure) const;

 private:
  struct Slot {
    const Executable* executable = nullptr;
    uint32_t node = 0;
  };
  std::vector<Slot> slots_;
};

// Interprets a claimed record; unknown codes become kUnreachable.
ir::TrapReport ReadTrapRecord(const GpuTrapRecord& record);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_TRAP_RECORDS_H_
