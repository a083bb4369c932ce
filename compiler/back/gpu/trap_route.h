// SPDX-License-Identifier: Apache-2.0
// Where an instance that traps goes in a kernel with barriers (TrapExit::kPostpone).
//
// It must still meet the barriers of its group. The nearest place is sought that every instance of the group reaches
// and that lies in front of the next barrier on all paths: right before a barrier, or before a construct with one, or
// before a branch that decides which barrier is next. There all wait, look whether one has trapped, and return if so.
#ifndef HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_
#define HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_

#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::gpu {

// By OpId of the entry: the operation in front of which an instance that traps in this one meets its group. That
// operation stands behind this one in the same region or an enclosing one. Invalid: it just ends; no barrier follows,
// or where control is such that there is no place to meet, in which case the driver decides what a barrier does that
// not all reach.
std::vector<ir::OpId> FindTrapRoutes(const ir::Module& module);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_
