// SPDX-License-Identifier: Apache-2.0
// Copies and fills of a small constant size, which compilers write for structures, as loads and stores: their bounds
// can be proven, they run in lanes, and a launch of them can be divided.
#ifndef HPVMD_COMPILER_PASS_MEMORY_EXPAND_BULK_H_
#define HPVMD_COMPILER_PASS_MEMORY_EXPAND_BULK_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// In bytes. More is as quick in one operation, and would fill the registers.
inline constexpr uint64_t kExpandedBytesMax = 256;
// Of all copies and fills of a kernel: four bytes become up to three operations, and compiling takes time for each.
inline constexpr uint64_t kExpandedBytesOfKernelMax = 4'096;

// What does the same as `bulk`, a memory_copy or memory_fill of `bytes` (1 to kExpandedBytesMax), in order: flat
// accesses of four bytes or fewer whose first operands are its addresses. Appended to the function, in no region yet.
// A copy's source is read before its target is written. Ranges lie 64 KiB or more apart (docs/KERNELS.md, S2), so that
// pieces that all lie in some range lie in one, as S15 asks; but where the target's first piece lies in none its last
// has been written, and a source that does not fit is reported before a target that does not.
std::vector<ir::OpId> ExpandBulk(ir::Function& function, ir::OpId bulk, uint64_t bytes);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_EXPAND_BULK_H_
