// SPDX-License-Identifier: Apache-2.0
// Which values of a function accesses to buffers rest on: addresses, the conditions under which they happen, and what
// both are made of. The rest, such as what sine does with the bits of its argument, tells nothing of where an access
// lies. A backward slice (Weiser, "Program Slicing", 1981) over structured control flow.
#ifndef HPVMD_COMPILER_ANALYSIS_RELEVANT_VALUES_H_
#define HPVMD_COMPILER_ANALYSIS_RELEVANT_VALUES_H_

#include <cstdint>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// Whether the operation may reach a parameter's buffer or group memory.
bool MayReachBuffers(const ir::Op& op);

// Borrows the function, which does not change meanwhile. Any thread.
class RelevantValues {
 public:
  explicit RelevantValues(const ir::Function& function);

  bool IsRelevant(ir::ValueId value) const { return is_relevant_[value.index]; }
  // A block, loop or if that reaches no buffer, gives out no group memory, and is left at its end only. What is in it,
  // its condition included, is relevant to nothing but its results, of which nothing is said.
  bool IsQuiet(ir::OpId op) const { return is_quiet_[op.index]; }

 private:
  // What leaves a region, or a block, loop or if.
  struct Found {
    bool is_loud = false;         // Something reaches a buffer.
    std::vector<ir::OpId> goals;  // Of jumps; those inside of it are gone.
  };

  Found Look(ir::RegionId region);
  void Collect(ir::RegionId region);
  void Mark(ir::ValueId value);
  void MarkOperands(const ir::Op& op);
  void Follow(ir::ValueId value);

  const ir::Function& f_;
  std::vector<bool> is_relevant_;  // By ValueId.
  std::vector<bool> is_quiet_;     // By OpId.
  const Definitions definitions_;
  const std::vector<std::vector<ir::ValueId>> sources_;
  std::vector<ir::ValueId> open_;  // Marked and not followed.
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_RELEVANT_VALUES_H_
