// SPDX-License-Identifier: Apache-2.0
// How much work a launch is: operations and bytes counted on the kernel IR, loops as often as a launch's facts say.
//
// The compiler writes for each stretch of code how many operations it holds, which loops it is in and on which
// conditions it is reached; how often a loop runs and which conditions hold follows from the kernel's BoundsProgram
// where that knows it, else it is a guess. It is looked at for the instance in the middle of the launch, and of outer
// loops in the middle of their trips: that is the mean where a count is linear in them, and says that conditions at an
// edge do not hold.
#ifndef HPVMD_COMPILER_IR_WORK_H_
#define HPVMD_COMPILER_IR_WORK_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/bounds.h"

namespace hpvm::ir {

// Code that runs as often as the loops around it.
struct WorkBlock {
  double operations = 0;  // Arithmetic and accesses to memory; a call counts as kCallOperations.
  double bytes = 0;       // Loaded from and stored to buffers.
  double share = 1;       // Of the iterations in which it is reached: 1/2 a branch of which nothing is known.
  std::vector<uint32_t> conditions;  // In BoundsProgram::constraints; where one does not hold, the code is not reached.
  std::vector<uint32_t> loops;       // In WorkProgram::loops, outermost first.
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
  // Some loop's count is not known, and kGuessedTrips or half of a bound was taken; or the program is empty, as for
  // modules that only a driver understands.
  bool is_guess = false;
};

inline constexpr double kCallOperations = 20;
inline constexpr double kGuessedTrips = 16;

// Never negative, never infinite or NaN. Both programs are of one artifact. Takes a few passes over them.
WorkCount CountWork(const WorkProgram& program, const BoundsProgram& bounds, const BoundsFacts& facts);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_WORK_H_
