// SPDX-License-Identifier: Apache-2.0
// RemoveBarriers removes barriers that order nothing.
//
// A barrier orders the accesses of a group's instances before and after it. It is removed if no access since the
// preceding barriers conflicts with an access up to the following barriers: two accesses conflict if they may touch
// the same bytes and one of them writes. Conflicting accesses are then still separated by another barrier, on every
// path, because barriers are removed one at a time. The rule is that of Moses et al., "High-Performance GPU-to-CPU
// Transpilation and Optimization via High-Level Parallel Constructs" (PPoPP 2023), with loops and branches followed as
// paths.
//
// Buffers may share bytes (docs/KERNELS.md, S72), so all parameters are one memory. Group memory is another, and flat
// addresses reach both. An address that has left its buffer or group memory counts as an access to that memory only.
// Atomics read and write. An instance's private memory orders nothing. A barrier also traps when instances diverge
// (S41, S42): only a barrier that all instances of a group certainly reach is removed.
#ifndef HPVMD_COMPILER_PASS_REMOVE_BARRIERS_H_
#define HPVMD_COMPILER_PASS_REMOVE_BARRIERS_H_

#include "base/status.h"
#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Changes the entry; works best after inlining, because barriers in called functions stay. Requires a verified module,
// which still verifies. Clears uses_barrier when no barrier is left. `report` may be null.
Status RemoveBarriers(ir::Module& module, KernelReport* report = nullptr);

// An operation's accesses to buffers, as defined above.
struct BufferUse {
  bool reads = false, writes = false;
};
BufferUse BuffersUsedBy(const ir::Op& op);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_REMOVE_BARRIERS_H_
