// SPDX-License-Identifier: Apache-2.0
// Records: neighbouring words that each instance reads or writes, at a constant distance from one instance's record to
// the next. A tile moves records as whole vectors and transposes them in registers instead of gathering word by word.
#ifndef HPVMD_COMPILER_PASS_GANG_GANG_RECORDS_H_
#define HPVMD_COMPILER_PASS_GANG_GANG_RECORDS_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/gang/gang_plan.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Loads (or stores) of whole words of one buffer in one region. All of the loads may be executed at the place of the
// first, all of the stores at the place of the last: no operation in between writes (or, for stores, reads) the same
// bytes, traps, or makes lanes diverge. The words of different lanes are different.
struct GangRecord {
  bool is_store = false;
  uint32_t width = 4;             // Bytes of a word: 4 or 8.
  uint32_t stride = 2;            // Words from one lane's record to the next lane's.
  uint32_t span = 2;              // Words from the first to the last that is accessed, inclusive; at most `stride`.
  std::vector<ir::OpId> members;  // In order; at least 2.
  std::vector<uint32_t> words;    // Indexed by member: the index of its word, below `span`. Stores: each word once.
};

// The profitable (dense) records. `of`, by OpId: an index in `records`, or -1.
struct GangRecords {
  std::vector<GangRecord> records;
  std::vector<int32_t> of;
};
GangRecords FindRecords(const ir::Module& module, const GangPlan& plan);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GANG_RECORDS_H_
