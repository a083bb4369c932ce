// SPDX-License-Identifier: Apache-2.0
// ExpandBulk turns copies and fills of a small constant size, which compilers emit for structures, into loads and
// stores: their bounds can be proven, they run in lanes, and a launch that contains them can be divided.
#ifndef HPVMD_COMPILER_PASS_MEMORY_EXPAND_BULK_H_
#define HPVMD_COMPILER_PASS_MEMORY_EXPAND_BULK_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Maximum size in bytes. Larger operations are as fast as a whole, and their words would fill the registers.
inline constexpr uint64_t kExpandedBytesMax = 256;
// Limit for all copies and fills of a kernel: four bytes become up to three operations, and each takes time to
// compile.
inline constexpr uint64_t kExpandedBytesOfKernelMax = 4'096;

// Returns operations equivalent to `bulk`, a memory_copy or memory_fill of `bytes` (1 to kExpandedBytesMax), in order:
// flat accesses of four bytes or fewer whose first operands are bulk's addresses. They are appended to the function,
// but not to a region. A copy's source is read before its target is written. Ranges lie 64 KiB or more apart
// (docs/KERNELS.md, S2), so if all pieces lie in ranges, they lie in the same one, as S15 requires; but if the
// target's first piece lies in no range, its last piece has been written, and a source that does not fit is reported
// before a target that does not.
std::vector<ir::OpId> ExpandBulk(ir::Function& function, ir::OpId bulk, uint64_t bytes);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_EXPAND_BULK_H_
