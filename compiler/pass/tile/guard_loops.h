// SPDX-License-Identifier: Apache-2.0
// GuardLoops places one check before a loop instead of a check in each of its iterations.
//
// A loop whose number of iterations is known at loop entry is written twice, behind a check that the bytes that its
// accesses reach, from the first iteration to the last, are inside the buffers. If so, the first copy runs, whose
// accesses are Op::is_inside; else the second, the original loop, which traps where the original does.
//
// A load whose offset comes from memory (`x[columns[k]]`) has no such check. In loops that only load and compute, the
// first copy reads the buffer's first word instead if the offset is beyond the end, and remembers the highest offset.
// If that was beyond the end, the second copy runs as well, from the beginning, because the first had no visible
// effect.
//
// Four neighbouring loads of one word each become one of 16 bytes, if the lowest is aligned.
#ifndef HPVMD_COMPILER_PASS_TILE_GUARD_LOOPS_H_
#define HPVMD_COMPILER_PASS_TILE_GUARD_LOOPS_H_

#include <optional>
#include <vector>

#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass {

// Limits of the operations of one loop, and of all loops of a kernel that are written twice; other loops remain
// unchanged.
inline constexpr uint32_t kGuardedLoopOpsMax = 384;
inline constexpr uint32_t kGuardedOpsMax = 1'536;

// The result is a tile of one instance. `is_unproven`, by OpId of the entry: accesses that no launch can prove inside;
// loops without such accesses remain unchanged. Returns nothing if no loop is guarded. `report` may be null.
std::optional<CoarseModule> GuardLoops(const ir::Module& module, const std::vector<bool>& is_unproven,
                                       KernelReport* report);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_GUARD_LOOPS_H_
