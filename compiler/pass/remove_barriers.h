// SPDX-License-Identifier: Apache-2.0
// Removes barriers that order nothing.
//
// A barrier orders what instances of a group do before it and after it. It goes if nothing that may happen since the
// barriers before it conflicts with what may happen up to those behind it: two accesses conflict if they may touch the
// same bytes and one of them writes. Whatever conflicts then still has another barrier between, on every path, since
// barriers go one at a time. The rule is that of Moses et al., "High-Performance GPU-to-CPU Transpilation and
// Optimization via High-Level Parallel Constructs" (PPoPP 2023), with loops and branches followed as paths.
//
// Buffers may share bytes (docs/KERNELS.md, S72), so that all parameters are one memory; group memory is another, and
// flat addresses reach both; an address that has left the buffer or the group memory it was made for reaches, as seen
// here, only what it was made for. Atomics read and write. What an instance has of its own orders nothing. A barrier
// also traps when instances part (S41, S42): only one that all of a group surely reach goes.
#ifndef HPVMD_COMPILER_PASS_REMOVE_BARRIERS_H_
#define HPVMD_COMPILER_PASS_REMOVE_BARRIERS_H_

#include "base/status.h"
#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Looks at the entry; best after inlining, since the barriers of functions that are called stay. Requires a verified
// module, which still verifies. uses_barrier falls when no barrier is left. `report` may be null.
Status RemoveBarriers(ir::Module& module, KernelReport* report = nullptr);

// What an operation does to buffers, as seen here.
struct BufferUse {
  bool reads = false, writes = false;
};
BufferUse BuffersUsedBy(const ir::Op& op);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_REMOVE_BARRIERS_H_
