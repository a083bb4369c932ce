// SPDX-License-Identifier: Apache-2.0
// Loops whose iterations wait for few loads each run several iterations at a time, so that their loads are under way
// together. Drivers' compilers do so with loops that they see through; a sum of several lengths, or a loop that another
// compiler has unrolled before, is none.
//
// A loop whose number of iterations is known where it begins is written twice: in a loop that runs N iterations at a
// time while more than N are left, and behind it, as it was, for the rest. Nothing is done earlier than it was:
// operations keep their order, so sums do, and no load is made that the loop would not have made. (Partial unrolling
// with a remainder, as LLVM's runtime unrolling does it.)
#ifndef HPVMD_COMPILER_PASS_TILE_LOADS_AHEAD_H_
#define HPVMD_COMPILER_PASS_TILE_LOADS_AHEAD_H_

#include <optional>
#include <vector>

#include "compiler/pass/rewrite/words.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass {

// Limits of the iterations that run together: words that they load (as many as hide a way to memory behind each other),
// operations, and those of all loops of a kernel.
inline constexpr uint32_t kAheadWordsMax = 16, kAheadOpsMax = 256, kAheadKernelOpsMax = 1'024;

// The loops that are taken end in one place, have no other loop, no barrier, no store and no atomic operation in them,
// and load from buffers. `is_free`, by OpId of the entry: accesses without a check; behind a check, or another end,
// loads wait for it, so that loops with one stay as they are. `coarse`, which may be null, is what `module` is the
// module of, and the form that is made stands for it. Nothing if no loop is taken.
std::optional<CoarseModule> LoadAhead(const ir::Module& module, const std::vector<bool>& is_free,
                                      const CoarseModule* coarse);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_LOADS_AHEAD_H_
