// SPDX-License-Identifier: Apache-2.0
// Accesses at constant distances behind an earlier one of the same buffer take its offset, and the distance as their
// immediate: b[o], b[o + 4], b[o + 8] for 32-bit sums that would each be computed, extended, and added to the buffer's
// address. A device adds an immediate by itself.
#ifndef HPVMD_COMPILER_PASS_MEMORY_SHARE_OFFSETS_H_
#define HPVMD_COMPILER_PASS_MEMORY_SHARE_OFFSETS_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// The entry, behind ResolveProvenance. Requires a verified module, which still verifies; its results, and traps, are
// the same.
//
// Immediates are added without wrapping around, offsets of 32 bits are not. That is the same here: the earlier access
// has stayed inside of its buffer, and a buffer ends at least kBaseAlignment below where offsets wrap around
// (ir::AssignAddresses), which is further than any distance that this pass takes.
Status ShareOffsets(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_SHARE_OFFSETS_H_
