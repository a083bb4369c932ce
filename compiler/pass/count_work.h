// SPDX-License-Identifier: Apache-2.0
// Writes down how much work a kernel is (compiler/ir/work.h).
#ifndef HPVMD_COMPILER_PASS_COUNT_WORK_H_
#define HPVMD_COMPILER_PASS_COUNT_WORK_H_

#include "compiler/ir/work.h"
#include "compiler/pass/find_bounds.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// What is beyond is counted with what is reached alike but for its conditions.
inline constexpr size_t kWorkBlocksMax = 512;

// What one operation counts for; constants, queries and control count nothing.
double OperationsOf(const ir::Op& op);
// Bytes of buffers that it loads and stores.
double BufferBytesOf(const ir::Op& op);

// Of the entry; `trace` is of FindBounds for the same module. A kernel that was too large for that has loops of which
// nothing is known. Requires a verified module.
ir::WorkProgram FindWork(const ir::Module& module, const BoundsTrace& trace);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_COUNT_WORK_H_
