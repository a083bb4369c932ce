// SPDX-License-Identifier: Apache-2.0
// FindWork describes how much work a kernel performs (compiler/ir/work.h).
#ifndef HPVMD_COMPILER_PASS_COUNT_WORK_H_
#define HPVMD_COMPILER_PASS_COUNT_WORK_H_

#include "compiler/ir/work.h"
#include "compiler/pass/find_bounds.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Maximum number of blocks; beyond it an operation is added to a block with the same loops but no conditions.
inline constexpr size_t kWorkBlocksMax = 512;

// Returns the weight of one operation; constants, queries and control weigh nothing.
double OperationsOf(const ir::Op& op);
// Returns the bytes of buffers that the operation loads and stores.
double BufferBytesOf(const ir::Op& op);

// Returns the work of the entry; `trace` comes from FindBounds for the same module. In a kernel that exceeded the
// limits of FindBounds, some loops are unknown. Requires a verified module.
ir::WorkProgram FindWork(const ir::Module& module, const BoundsTrace& trace);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_COUNT_WORK_H_
