// SPDX-License-Identifier: Apache-2.0
// Writes down what a launch has to show so that accesses to parameters need no checks (compiler/ir/bounds.h).
//
// Looks at the entry, after inlining and provenance. Values become polynomials over atoms; conditions of branches
// become constraints where they hold; a loop's parameter that grows by a loop-invariant step on every edge back is
// its initial value plus the step times the loop's trip. The induction variables are those of Wolfe, "Beyond Induction
// Variables" (PLDI 1992), restricted to polynomials of degree 1 in the trip.
#ifndef HPVMD_COMPILER_PASS_FIND_BOUNDS_H_
#define HPVMD_COMPILER_PASS_FIND_BOUNDS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler/ir/bounds.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// What one launch can afford to look at.
inline constexpr size_t kBoundsAtomsMax = 256;
inline constexpr size_t kBoundsConstraintsMax = 512;
inline constexpr size_t kBoundsAccessesMax = 256;

// By operations of the entry.
struct BoundsTrace {
  // What a way out of a branch says.
  struct Way {
    std::vector<uint32_t> when;  // Constraints that hold on it.
    bool is_exact = false;       // It is taken exactly when they do.
  };
  struct Branch {
    Way taken, otherwise;
  };
  std::unordered_map<uint32_t, Branch> branches;  // By an if's OpId.
  std::unordered_map<uint32_t, uint32_t> loops;   // By a loop's OpId: in BoundsProgram::loops.
};

// Accesses that a launch bounds only where it knows the words of the buffers that their offsets come from are the
// program's `by_words`; those that no launch could bound are its `others`, and keep their checks. When some access is
// not understood at all, the program is not complete. Requires a verified module. Of a kernel that is too large only
// what accesses rest on is looked at (compiler/analysis/relevant_values.h); what is beyond the limits even so is left
// out: constraints, which only sharpen what is known, and values, which makes the accesses that rest on them `others`.
// `trace`, if not null, receives which parts of the entry the program's parts are.
ir::BoundsProgram FindBounds(const ir::Module& module, BoundsTrace* trace = nullptr);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_FIND_BOUNDS_H_
