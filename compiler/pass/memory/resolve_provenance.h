// SPDX-License-Identifier: Apache-2.0
// ResolveProvenance finds the buffer of an address: flat accesses whose address is computed from parameter k's base
// become accesses of space param(k), at the address minus the base; addresses from local_alloc make accesses of space
// group.
//
// Requires a verified module; changes the entry only, because other functions do not see the bases. The pass may guess
// wrong: an access of param(k) that misses the buffer goes to the same flat address (ir.h, Space), so the meaning
// never changes and a wrong guess costs only time.
//
// Sets Module::has_separate_buffers where it holds. This flag must be right: such a kernel may be given buffers whose
// addresses overlap, because the kernel cannot detect it.
#ifndef HPVMD_COMPILER_PASS_MEMORY_RESOLVE_PROVENANCE_H_
#define HPVMD_COMPILER_PASS_MEMORY_RESOLVE_PROVENANCE_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

Status ResolveProvenance(ir::Module& module);

// Repeats the pass so that copies and fills of a small constant size between the shadow stack and these spaces, or
// within the stack, also become loads and stores. Returns true if any was found.
bool ExpandStackCopies(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_RESOLVE_PROVENANCE_H_
