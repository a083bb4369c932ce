// SPDX-License-Identifier: Apache-2.0
// Proof that a box of instances stores to every byte of a range. The inside of access.cc.
//
// A store that surely happens for every instance of a box of ids, and every iteration of loops whose counts are known,
// at an offset linear in these, writes an arithmetic progression of several dimensions. Dimensions whose stride is not
// larger than what is written so far fill it without gaps; what is left is joined with that of other stores.
#ifndef HPVMD_COMPILER_IR_OVERWRITE_H_
#define HPVMD_COMPILER_IR_OVERWRITE_H_

#include <vector>

#include "compiler/ir/access.h"
#include "compiler/ir/bounds_prover.h"

namespace hpvm::ir {

// Whether `stores` (of one parameter) write to all of `range` whatever the data, unless the launch traps. False when
// that does not show. The prover knows the trips of all loops.
bool StoresCover(const BoundsProgram& program, const BoundsProver& prover,
                 const std::vector<const BoundsAccess*>& stores, const AccessRange& range);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_OVERWRITE_H_
