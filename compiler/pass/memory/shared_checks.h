// SPDX-License-Identifier: Apache-2.0
// One check for several loads of a region: those of one place but for constants, in whichever buffers.
#ifndef HPVMD_COMPILER_PASS_MEMORY_SHARED_CHECKS_H_
#define HPVMD_COMPILER_PASS_MEMORY_SHARED_CHECKS_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// The loads are inside if for each bound the lowest place, the first member's operand less `below` (wrapped to the
// address type), and `reach` bytes from there on lie in the parameter's buffer.
struct SharedCheck {
  struct Bound {
    uint32_t param = 0;
    uint64_t reach = 0;
  };
  std::vector<ir::OpId> members;     // In order; at least 2.
  std::vector<uint64_t> from_first;  // Of each: its operand less the first's, wrapped to the address type.
  uint64_t below = 0;
  std::vector<Bound> bounds;  // One a parameter.
};

struct SharedChecks {
  std::vector<SharedCheck> checks;
  std::vector<int32_t> of;  // By OpId of the entry: an index in `checks`, or -1.
};

// Looks at loads of space param(k) where `is_asked`, by OpId, holds. Where the first member stands the others need not
// be reached: such a check may fail though no load does; unless `is_together`: then nothing stands between them that
// branches, has an effect, waits or traps, no load of another place either.
SharedChecks FindSharedChecks(const ir::Module& module, const std::vector<bool>& is_asked, bool is_together = false);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_SHARED_CHECKS_H_
