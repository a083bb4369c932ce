// SPDX-License-Identifier: Apache-2.0
// The state that the instances of one checked launch share: the records of buffers and group memory, and the location
// of addresses. Internal to the interpreter.
#ifndef HPVMD_COMPILER_IR_INTERPRET_LAUNCH_CHECK_H_
#define HPVMD_COMPILER_IR_INTERPRET_LAUNCH_CHECK_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/ir/access_record.h"
#include "compiler/ir/check.h"
#include "compiler/ir/grid.h"
#include "compiler/ir/interpret/machine.h"

namespace hpvm::ir {

// An operation of an instance. `site` numbers the Codes of all functions.
struct CheckedSite {
  Triple instance{};
  uint32_t local = 0;  // The instance's number in its group.
  uint32_t function = 0;
  uint32_t source = 0;
  uint32_t site = 0;
};

struct Location {
  FindingMemory memory = FindingMemory::kNone;
  uint32_t param = 0;   // For kBuffer.
  uint64_t offset = 0;  // As Finding::offset.
};

class LaunchCheck {
 public:
  // All arguments are borrowed. `begin` is the first unit that runs.
  LaunchCheck(const DecodedModule& decoded, const Launch& launch, const AddressSpace& addresses, Checker& checker,
              uint64_t begin);

  // Returns an error for launches that cannot be checked.
  static Status CanCheck(const Module& module, const Launch& launch, uint64_t units);

  // Begins the next unit: a group, or an instance of a kernel that does not run by groups.
  void BeginUnit();
  // All instances of the group have arrived at a barrier.
  void PassBarrier();

  uint32_t SiteOf(const DecodedFunction& function, const Code* code) const {
    return site_begin_[function.index] + static_cast<uint32_t>(code - function.code.data());
  }
  // Locates an access that did not trap.
  Location Locate(uint64_t address, uint64_t bytes, uint64_t memory_bytes) const;

  // Records an access to a buffer or to group memory, and reports races and reads of unwritten bytes. `reads` is
  // separate, because atomic operations may read and write.
  void Access(const CheckedSite& site, AccessKind kind, bool reads, const Location& location, uint64_t bytes);
  void ReportUninitialized(const CheckedSite& site, const Location& location, uint64_t bytes, bool is_atomic);
  void ReportWrongBuffer(const CheckedSite& site, AccessKind kind, const Location& location, uint64_t bytes,
                         uint32_t through);
  // `other` has no operation when it has ended.
  void ReportMissedBarrier(const CheckedSite& waiting, const CheckedSite& other, bool other_has_ended);

  // Takes bytes from CheckOptions::record_bytes_max. Returns false and marks the check incomplete when too few are
  // left.
  bool TakeBytes(uint64_t bytes);
  void ReturnBytes(uint64_t bytes) { bytes_left_ += bytes; }

 private:
  struct BufferLocation {
    size_t record = 0;    // Index in records_.
    uint64_t offset = 0;  // Offset of the buffer's first byte in the record.
    bool is_output = false;
  };

  void PlaceBuffers();
  AccessRecord& RecordOf(const Location& location, uint64_t* offset);
  FindingLocation PlaceOf(const Mark& mark, AccessKind kind) const;
  void ReportRace(const CheckedSite& site, AccessKind kind, Location location, const AccessRecord::Conflict& conflict);

  const DecodedModule& decoded_;
  const Launch& launch_;
  const AddressSpace& addresses_;
  Checker& checker_;
  const bool by_groups_;
  const uint64_t begin_;
  uint64_t bytes_left_;
  std::vector<uint32_t> site_begin_;     // One per function.
  std::vector<AccessRecord> records_;    // Records of the buffers' bytes; overlapping buffers share one.
  std::vector<BufferLocation> buffers_;  // One per parameter.
  AccessRecord group_record_;
  uint32_t stamp_ = 0, group_stamp_ = 0;
  std::vector<uint32_t> group_stamps_;  // With by_groups_: the first stamp of each group begun.
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERPRET_LAUNCH_CHECK_H_
