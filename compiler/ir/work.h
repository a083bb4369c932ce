// SPDX-License-Identifier: Apache-2.0
// Estimates the work of a launch: operations and bytes, counted on the kernel IR and multiplied by the loops' trip
// counts.
//
// For each stretch of code the compiler records the number of its operations, the loops that contain it and the
// conditions under which it is reached. The kernel's BoundsProgram gives trip counts and decides conditions where it
// can; otherwise they are guessed. The estimate is for the instance in the middle of the launch, and for outer loops
// in the middle of their trips: that is the mean where a count is linear in them, and conditions for edges do not
// hold there.
#ifndef HPVMD_COMPILER_IR_WORK_H_
#define HPVMD_COMPILER_IR_WORK_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/bounds.h"

namespace hpvm::ir {

// Code that runs as often as the loops around it.
struct WorkBlock {
  double operations = 0;  // Arithmetic operations and memory accesses; a call counts as kCallOperations.
  double bytes = 0;       // Bytes loaded from and stored to buffers.
  double share = 1;  // Fraction of the iterations in which the code is reached: 1/2 for a branch about which nothing
                     // is known.
  std::vector<uint32_t> conditions;  // Indices in BoundsProgram::constraints; the code is reached only when all of
                                     // them hold.
  std::vector<uint32_t> loops;       // Indices in WorkProgram::loops, outermost first.
};

struct WorkLoop {
  static constexpr uint32_t kUnknown = 0xffffffffu;
  uint32_t bounds_loop = kUnknown;  // Index in BoundsProgram::loops; kUnknown when nothing is known of the loop.
};

struct WorkProgram {
  std::vector<WorkBlock> blocks;
  std::vector<WorkLoop> loops;
};

struct WorkCount {
  double operations = 0, bytes = 0;  // Totals for the whole launch.
  // True when some loop's trip count is unknown, and kGuessedTrips or half of a bound was used, or when the program
  // is empty, as for modules that only a driver understands.
  bool is_guess = false;
};

inline constexpr double kCallOperations = 20;
inline constexpr double kGuessedTrips = 16;

// Results are never negative, infinite or NaN. Both programs belong to one artifact. Takes a few passes over them.
WorkCount CountWork(const WorkProgram& program, const BoundsProgram& bounds, const BoundsFacts& facts);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_WORK_H_
