// SPDX-License-Identifier: Apache-2.0
// FindPaths determines how the operations of a kernel are reached: through which loops, and under which conditions.
//
// It is a structured walk over the entry with the constraints that FindBounds found for its branches. Conditions are
// not followed past a block that several jumps leave if one of them goes past the block's end.
#ifndef HPVMD_COMPILER_PASS_FIND_PATHS_H_
#define HPVMD_COMPILER_PASS_FIND_PATHS_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/bounds.h"
#include "compiler/pass/find_bounds.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

struct Path {
  static constexpr uint32_t kUnknownLoop = 0xffffffffu;

  // An operation on the path happens in each iteration of all of `loops` in which all of `when` hold, unless the
  // launch traps. If not `is_exact`, it may happen less often.
  bool is_exact = true;
  std::vector<uint32_t> when;   // Constraints of the bounds program.
  uint32_t unknown = 0;         // Further branches without a constraint.
  std::vector<uint32_t> loops;  // Outermost first; loops of the bounds program, or kUnknownLoop.
};

struct FunctionPaths {
  static constexpr uint32_t kNone = 0xffffffffu;

  std::vector<Path> paths;
  std::vector<uint32_t> of;  // Indexed by OpId: the index in `paths`; kNone for operations that are not in a region.
};

// If is_exact, another iteration of the loop follows exactly when `when` holds.
struct LoopPath {
  std::vector<uint32_t> when;
  bool is_exact = false;
};

// `trace` comes from FindBounds for the same function; `loops`, if not null, receives an entry for each of its loops.
FunctionPaths FindPaths(const ir::Function& function, const BoundsTrace& trace, std::vector<LoopPath>* loops = nullptr);

// Adds to the program the conditions under which its accesses happen and its loops continue, and the loads that read
// only bytes that the same instance has stored. The program must belong to the same function and trace.
void AddPaths(const ir::Function& function, const BoundsTrace& trace, ir::BoundsProgram* program);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_FIND_PATHS_H_
