// SPDX-License-Identifier: Apache-2.0
// Emits the loop that runs an interval for all instances of a group. Internal to group.cc.
#ifndef HPVMD_COMPILER_BACK_LLVM_GROUP_LOOP_H_
#define HPVMD_COMPILER_BACK_LLVM_GROUP_LOOP_H_

#include "llvm/IR/Function.h"

#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/pass/gang/gang_plan.h"
#include "compiler/pass/gang/split_barriers.h"

namespace hpvm::cpu {

struct GroupLoop {
  const pass::BarrierInterval* interval;
  pass::GangShape shape;   // Shape of `rows`; one column.
  llvm::Function* rows;    // Runs several rows of whole gangs at once; null when the shape has one row.
  llvm::Function* whole;   // Runs one whole gang.
  llvm::Function* masked;  // Runs one gang under a mask.
};

// Fills `function`, which is declared as a kernel function of the interval's loop. Its instance is the group's first
// one.
void EmitGroupLoop(ModuleEmitter& m, const GroupLoop& loop, llvm::Function* function);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GROUP_LOOP_H_
