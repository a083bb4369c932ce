// SPDX-License-Identifier: Apache-2.0
// Proves that a box of instances stores to every byte of a range. Internal to access.cc.
//
// A store that certainly happens for every instance of a box of ids and for every iteration of loops with known trip
// counts, at an offset linear in these, writes an arithmetic progression of several dimensions. Dimensions whose
// stride is at most the length written so far fill the range without gaps; the other dimensions remain, and the
// progression is joined with those of other stores.
#ifndef HPVMD_COMPILER_IR_OVERWRITE_H_
#define HPVMD_COMPILER_IR_OVERWRITE_H_

#include <vector>

#include "compiler/ir/access.h"
#include "compiler/ir/bounds_prover.h"

namespace hpvm::ir {

// Returns true when `stores` (of one parameter) write all of `range`, whatever the data, unless the launch traps;
// false when the proof fails. The prover must know the trips of all loops.
bool StoresCover(const BoundsProgram& program, const BoundsProver& prover,
                 const std::vector<const BoundsAccess*>& stores, const AccessRange& range);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_OVERWRITE_H_
