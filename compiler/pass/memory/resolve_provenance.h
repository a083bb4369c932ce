// SPDX-License-Identifier: Apache-2.0
// Finds the buffer that an address comes from: flat accesses whose address is computed from parameter k's base become
// accesses of space param(k), at the address minus the base; addresses from local_alloc make accesses of space group.
//
// Requires a verified module; looks at the entry only, since other functions do not see the bases. It need not be right
// about what the kernel means: an access of param(k) that misses the buffer goes to the same flat address (ir.h,
// Space), so the meaning never changes and a wrong guess costs time only.
//
// Sets Module::has_separate_buffers where it holds. That one must be right: such a kernel may be given buffers whose
// addresses overlap, since it cannot tell.
#ifndef HPVMD_COMPILER_PASS_MEMORY_RESOLVE_PROVENANCE_H_
#define HPVMD_COMPILER_PASS_MEMORY_RESOLVE_PROVENANCE_H_

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

Status ResolveProvenance(ir::Module& module);

// Does it again, such that copies and fills of a small constant size between the shadow stack and these, or within the
// stack, become loads and stores, too. Whether any was found.
bool ExpandStackCopies(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_RESOLVE_PROVENANCE_H_
