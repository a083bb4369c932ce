// SPDX-License-Identifier: Apache-2.0
// LoadAhead makes loops whose iterations each wait for few loads run several iterations at a time, so that their loads
// overlap. Drivers' compilers do so for loops that they can analyse, but not for a sum of several lengths, or for a
// loop that another compiler has unrolled before.
//
// A loop whose number of iterations is known at loop entry is written twice: as a loop that runs N iterations at a
// time while more than N are left, followed by the original loop for the rest. Nothing is executed earlier than
// before: operations keep their order, so sums do, and no load is added that the loop would not have executed.
// (Partial unrolling with a remainder, as in LLVM's runtime unrolling.)
#ifndef HPVMD_COMPILER_PASS_TILE_LOADS_AHEAD_H_
#define HPVMD_COMPILER_PASS_TILE_LOADS_AHEAD_H_

#include <optional>
#include <vector>

#include "compiler/pass/rewrite/words.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass {

// Limits of the iterations that run together: words that they load (enough to hide the memory latency), operations,
// and operations of all loops of a kernel.
inline constexpr uint32_t kAheadWordsMax = 16, kAheadOpsMax = 256, kAheadKernelOpsMax = 1'024;

// The pass changes loops that end in one place, contain no other loop, barrier, store or atomic operation, and load
// from buffers. `is_free`, by OpId of the entry: accesses without a check; loads wait for a check, or another exit,
// before them, so loops with one remain unchanged. `module` is the module of `coarse`, which may be null, and the
// result replaces `coarse`. Returns nothing if no loop is changed.
std::optional<CoarseModule> LoadAhead(const ir::Module& module, const std::vector<bool>& is_free,
                                      const CoarseModule* coarse);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_LOADS_AHEAD_H_
