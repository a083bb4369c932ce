// SPDX-License-Identifier: Apache-2.0
// How much work a launch is: operations and bytes counted on the kernel IR, loops as often as a launch's facts say.
//
// The compiler writes for each block of code how many operations it holds and which loops it is in; how often a loop
// runs follows from the atoms of the kernel's BoundsProgram where that knows it, else it is a guess, and says so.
#ifndef HPVMD_COMPILER_IR_WORK_H_
#define HPVMD_COMPILER_IR_WORK_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/bounds.h"

namespace hpvm::ir {

// Code that runs as often as the loops around it, times `share` (1/2 a branch).
struct WorkBlock {
  double share = 1;
  double operations = 0;           // Arithmetic; a call of the math library counts as 20.
  double bytes = 0;                // Loaded from and stored to buffers.
  std::vector<uint32_t> loops;     // In WorkProgram::loops, outermost first.
};

struct WorkLoop {
  static constexpr uint32_t kUnknown = 0xffffffffu;
  uint32_t bounds_loop = kUnknown;  // In BoundsProgram::loops; kUnknown: nothing is known of it.
};

struct WorkProgram {
  std::vector<WorkBlock> blocks;
  std::vector<WorkLoop> loops;
};

struct WorkCount {
  double operations = 0, bytes = 0;  // Of the whole launch.
  bool is_guess = false;             // Some loop's count is not known: kGuessedTrips was taken.
};

inline constexpr double kGuessedTrips = 16;

// Never negative, never infinite or NaN.
WorkCount CountWork(const WorkProgram& program, const BoundsProgram& bounds, const BoundsFacts& facts);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_WORK_H_
