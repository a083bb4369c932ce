// SPDX-License-Identifier: Apache-2.0
// On which ways the operations of a kernel are reached: through which loops, and under which conditions.
//
// A structured walk over the entry with the constraints that FindBounds found for its branches. Where a block is left
// in several ways of which some go past its end, the conditions behind it are not followed.
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

  // An operation on it happens in each iteration of all of `loops` in which all of `when` hold, unless the launch
  // traps. If not `is_exact`, it may happen less often.
  bool is_exact = true;
  std::vector<uint32_t> when;   // Constraints of the bounds program.
  uint32_t unknown = 0;         // Further branches of which no constraint tells.
  std::vector<uint32_t> loops;  // Outermost first; of the bounds program, or kUnknownLoop.
};

struct FunctionPaths {
  static constexpr uint32_t kNone = 0xffffffffu;

  std::vector<Path> paths;
  std::vector<uint32_t> of;  // By OpId: in `paths`; kNone for operations that are not in a region.
};

// Of a loop: exactly when `when` holds, an iteration is followed by another.
struct LoopPath {
  std::vector<uint32_t> when;
  bool is_exact = false;
};

// `trace` is of FindBounds for the same function; `loops`, if not null, receives one for each of its loops.
FunctionPaths FindPaths(const ir::Function& function, const BoundsTrace& trace, std::vector<LoopPath>* loops = nullptr);

// Writes into the program when its accesses happen and its loops go on, and which loads read only what the same
// instance has stored. The program is of the same function and trace.
void AddPaths(const ir::Function& function, const BoundsTrace& trace, ir::BoundsProgram* program);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_FIND_PATHS_H_
