// SPDX-License-Identifier: Apache-2.0
// One check before a loop in place of one in each of its iterations.
//
// A loop whose number of iterations is known where it begins is written twice. Before it stands a check that what its
// accesses reach, from the first iteration to the last, lies in the buffers. If so, the first copy runs, whose accesses
// are Op::is_inside; else the second, the loop as it was, which traps where it did.
//
// A load whose place comes from memory (`x[columns[k]]`) has no such check. In loops that only load and compute, the
// first copy has it read the buffer's first place where its own lies behind the end, and remembers the highest place.
// If that was behind the end, the second copy runs as well, from the beginning, as nobody has seen the first.
//
// Four neighbouring loads of one word each become one of 16 bytes, where the lowest is aligned.
#ifndef HPVMD_COMPILER_PASS_TILE_GUARD_LOOPS_H_
#define HPVMD_COMPILER_PASS_TILE_GUARD_LOOPS_H_

#include <optional>
#include <vector>

#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass {

// Larger loops stay as they are; and what is written twice of a kernel has a limit.
inline constexpr uint32_t kGuardedLoopOpsMax = 384;
inline constexpr uint32_t kGuardedOpsMax = 1'536;

// A tile of one instance. `is_unproven`, by OpId of the entry: accesses that no launch can show to stay inside; loops
// without one stay as they are, too. Nothing if no loop is guarded. `report` may be null.
std::optional<CoarseModule> GuardLoops(const ir::Module& module, const std::vector<bool>& is_unproven,
                                       KernelReport* report);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_GUARD_LOOPS_H_
