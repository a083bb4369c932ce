// SPDX-License-Identifier: Apache-2.0
// RelevantValues finds the values that accesses to buffers depend on: addresses, the conditions under which the
// accesses happen, and the inputs of both. Other values, such as the result of sine's bit manipulation, do not affect
// the location of an access. The method is a backward slice (Weiser, "Program Slicing", 1981) over structured control
// flow.
#ifndef HPVMD_COMPILER_ANALYSIS_RELEVANT_VALUES_H_
#define HPVMD_COMPILER_ANALYSIS_RELEVANT_VALUES_H_

#include <cstdint>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// Returns true if the operation may access a parameter's buffer or group memory.
bool MayReachBuffers(const ir::Op& op);

// Borrows the function, which must not change during the object's lifetime. Thread-safe.
class RelevantValues {
 public:
  explicit RelevantValues(const ir::Function& function);

  bool IsRelevant(ir::ValueId value) const { return is_relevant_[value.index]; }
  // Returns true for a block, loop or if that accesses no buffer, allocates no group memory, and is left at its end
  // only. Its contents, including its condition, are relevant only to its results, which this analysis treats as
  // opaque.
  bool IsQuiet(ir::OpId op) const { return is_quiet_[op.index]; }

 private:
  // The effects and jumps that leave a region or construct.
  struct Found {
    bool is_loud = false;         // True if an operation may access a buffer.
    std::vector<ir::OpId> goals;  // Targets of jumps; targets inside the region are removed.
  };

  Found Look(ir::RegionId region);
  void Collect(ir::RegionId region);
  void Mark(ir::ValueId value);
  void MarkOperands(const ir::Op& op);
  void Follow(ir::ValueId value);

  const ir::Function& f_;
  std::vector<bool> is_relevant_;  // Indexed by ValueId.
  std::vector<bool> is_quiet_;     // Indexed by OpId.
  const Definitions definitions_;
  const std::vector<std::vector<ir::ValueId>> sources_;
  std::vector<ir::ValueId> open_;  // Values that are marked and not yet followed.
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_RELEVANT_VALUES_H_
