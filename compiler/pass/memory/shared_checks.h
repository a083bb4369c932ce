// SPDX-License-Identifier: Apache-2.0
// SharedCheck is one check for several loads of a region whose addresses differ by constants only, in any buffers.
#ifndef HPVMD_COMPILER_PASS_MEMORY_SHARED_CHECKS_H_
#define HPVMD_COMPILER_PASS_MEMORY_SHARED_CHECKS_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// The loads are inside if, for each bound, `reach` bytes from the lowest place on lie in the parameter's buffer. The
// lowest place is the first member's operand minus `below` (wrapped to the address type).
struct SharedCheck {
  struct Bound {
    uint32_t param = 0;
    uint64_t reach = 0;
  };
  std::vector<ir::OpId> members;     // In order; at least 2.
  std::vector<uint64_t> from_first;  // Indexed by member: its operand minus the first's, wrapped to the address type.
  uint64_t below = 0;
  std::vector<Bound> bounds;  // One per parameter.
};

struct SharedChecks {
  std::vector<SharedCheck> checks;
  std::vector<int32_t> of;  // Indexed by OpId of the entry: an index in `checks`, or -1.
};

// Examines loads of space param(k) for which `is_asked`, by OpId, is true. Not all members need be reached from the
// first: such a check may fail although no load does. If `is_together`, no operation between the members branches, has
// an effect, waits or traps, nor is a load of another place.
SharedChecks FindSharedChecks(const ir::Module& module, const std::vector<bool>& is_asked, bool is_together = false);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_SHARED_CHECKS_H_
