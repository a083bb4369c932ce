// SPDX-License-Identifier: Apache-2.0
// ShareOffsets makes accesses at constant distances after an earlier one of the same buffer use its offset, with the
// distance as their immediate: b[o], b[o + 4], b[o + 8] instead of 32-bit sums that would each be computed, extended,
// and added to the buffer's address. A device adds an immediate for free.
#ifndef HPVMD_COMPILER_PASS_MEMORY_SHARE_OFFSETS_H_
#define HPVMD_COMPILER_PASS_MEMORY_SHARE_OFFSETS_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Changes the entry; runs after ResolveProvenance. Requires a verified module, which still verifies; its results and
// traps remain the same.
//
// Immediates are added without wrapping around, unlike offsets of 32 bits. Here both give the same result: the earlier
// access was inside its buffer, and a buffer ends at least kBaseAlignment below the point where offsets wrap around
// (ir::AssignAddresses), which exceeds any distance that this pass uses.
Status ShareOffsets(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_SHARE_OFFSETS_H_
