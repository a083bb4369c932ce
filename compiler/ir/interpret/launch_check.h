// SPDX-License-Identifier: Apache-2.0
// What the instances of one checked launch share: the records of buffers and group memory, and where an address lies.
// Only the interpreter includes it.
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
  uint32_t param = 0;   // kBuffer.
  uint64_t offset = 0;  // As Finding::offset.
};

class LaunchCheck {
 public:
  // All borrowed. `begin` is the first unit that runs.
  LaunchCheck(const DecodedModule& decoded, const Launch& launch, const AddressSpace& addresses, Checker& checker,
              uint64_t begin);

  // What cannot be checked.
  static Status CanCheck(const Module& module, const Launch& launch, uint64_t units);

  // The next unit begins: a group, or an instance where there are none.
  void BeginUnit();
  // All instances of the group have arrived.
  void PassBarrier();

  uint32_t SiteOf(const DecodedFunction& function, const Code* code) const {
    return site_begin_[function.index] + static_cast<uint32_t>(code - function.code.data());
  }
  // Of an access that did not trap.
  Location Locate(uint64_t address, uint64_t bytes, uint64_t memory_bytes) const;

  // An access to a buffer or to group memory: races, and reads of what nothing has written. `reads`: atomic ones may do
  // both.
  void Access(const CheckedSite& site, AccessKind kind, bool reads, const Location& location, uint64_t bytes);
  void ReportUninitialized(const CheckedSite& site, const Location& location, uint64_t bytes, bool is_atomic);
  void ReportWrongBuffer(const CheckedSite& site, AccessKind kind, const Location& location, uint64_t bytes,
                         uint32_t through);
  // `other` is at no operation if it has ended.
  void ReportMissedBarrier(const CheckedSite& waiting, const CheckedSite& other, bool other_has_ended);

  // Of CheckOptions::record_bytes_max; false, and the check is incomplete, when there are not so many left.
  bool TakeBytes(uint64_t bytes);
  void ReturnBytes(uint64_t bytes) { bytes_left_ += bytes; }

 private:
  struct BufferPlace {
    size_t record = 0;    // In records_.
    uint64_t offset = 0;  // Of the buffer's first byte in it.
    bool is_output = false;
  };

  void PlaceBuffers();
  AccessRecord& RecordOf(const Location& location, uint64_t* offset);
  FindingPlace PlaceOf(const Mark& mark, AccessKind kind) const;
  void ReportRace(const CheckedSite& site, AccessKind kind, Location location, const AccessRecord::Conflict& conflict);

  const DecodedModule& decoded_;
  const Launch& launch_;
  const AddressSpace& addresses_;
  Checker& checker_;
  const bool by_groups_;
  const uint64_t begin_;
  uint64_t bytes_left_;
  std::vector<uint32_t> site_begin_;   // One a function.
  std::vector<AccessRecord> records_;  // Of the buffers' bytes; overlapping buffers share one.
  std::vector<BufferPlace> buffers_;   // One a parameter.
  AccessRecord group_record_;
  uint32_t stamp_ = 0, group_stamp_ = 0;
  std::vector<uint32_t> group_stamps_;  // by_groups_: of each group begun, its first stamp.
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERPRET_LAUNCH_CHECK_H_
