// SPDX-License-Identifier: Apache-2.0
// FindBounds states the conditions that a launch has to prove so that accesses to parameters need no checks
// (compiler/ir/bounds.h).
//
// It analyses the entry, after inlining and provenance. Values become polynomials over atoms; conditions of branches
// become constraints where they hold; a loop's parameter that grows by a loop-invariant step on every back edge is its
// initial value plus the step times the loop's trip. The induction variables are those of Wolfe, "Beyond Induction
// Variables" (PLDI 1992), restricted to polynomials of degree 1 in the trip.
#ifndef HPVMD_COMPILER_PASS_FIND_BOUNDS_H_
#define HPVMD_COMPILER_PASS_FIND_BOUNDS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler/ir/bounds.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Limits that keep the proof affordable at each launch.
inline constexpr size_t kBoundsAtomsMax = 256;
inline constexpr size_t kBoundsConstraintsMax = 512;
inline constexpr size_t kBoundsAccessesMax = 256;

// BoundsTrace maps operations of the entry to parts of the bounds program.
struct BoundsTrace {
  // The conditions of one direction of a branch.
  struct Way {
    std::vector<uint32_t> when;  // Constraints that hold in this direction.
    bool is_exact = false;       // True if the direction is taken exactly when all of them hold.
  };
  struct Branch {
    Way taken, otherwise;
  };
  std::unordered_map<uint32_t, Branch> branches;  // Keyed by an if's OpId.
  std::unordered_map<uint32_t, uint32_t> loops;   // Keyed by a loop's OpId: its index in BoundsProgram::loops.
};

// The program's `by_words` are the accesses that a launch can bound only if it knows the words of the buffers from
// which their offsets come; its `others` are accesses that no launch can bound, which keep their checks. The program
// is not complete when some access could not be modelled at all. Requires a verified module. In a kernel that is too
// large FindBounds considers only the values that accesses depend on (compiler/analysis/relevant_values.h), and drops
// the parts that still exceed the limits: constraints, which only add precision, and values, whose dependent accesses
// become `others`. `trace`, if not null, receives the correspondence between the entry and the program.
ir::BoundsProgram FindBounds(const ir::Module& module, BoundsTrace* trace = nullptr);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_FIND_BOUNDS_H_
