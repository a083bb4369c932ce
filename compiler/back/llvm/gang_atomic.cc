// SPDX-License-Identifier: Apache-2.0
// Atomics of lanes, one lane after the other.
#include "compiler/back/llvm/gang_memory.h"

namespace hpvm::cpu {

Status GangEmitter::EmitAtomic(const ir::Op& op, ir::OpId id) { return GangAccess(*this, op, id).EmitAtomic(); }

Status GangAccess::EmitAtomic() {
  return Unimplemented("Instances in lockstep have no atomics yet (function \"" + g_.f_.name + "\").");
}

}  // namespace hpvm::cpu
