// SPDX-License-Identifier: Apache-2.0
// Records: what each instance reads or writes of neighbouring words, with a constant distance from one instance's to
// the next. A tile moves them as whole vectors and transposes them in registers instead of gathering word by word.
#ifndef HPVMD_COMPILER_PASS_GANG_GANG_RECORDS_H_
#define HPVMD_COMPILER_PASS_GANG_GANG_RECORDS_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/gang/gang_plan.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Loads (or stores) of whole words of one buffer that stand in one region. All of the loads may be done where the first
// stands, all of the stores where the last does: nothing between them writes (touches) what they touch, traps or parts
// lanes. The words of different lanes are different.
struct GangRecord {
  bool is_store = false;
  uint32_t width = 4;             // Bytes of a word: 4 or 8.
  uint32_t stride = 2;            // Words from one lane's record to the next lane's.
  uint32_t span = 2;              // Words from the first that is touched to behind the last; at most `stride`.
  std::vector<ir::OpId> members;  // In order; at least 2.
  std::vector<uint32_t> words;    // Of each member: which of the record's, below `span`. Stores: each word once.
};

// Those that are worth it: dense ones. `of`, by OpId: an index in `records`, or -1.
struct GangRecords {
  std::vector<GangRecord> records;
  std::vector<int32_t> of;
};
GangRecords FindRecords(const ir::Module& module, const GangPlan& plan);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GANG_RECORDS_H_
