// SPDX-License-Identifier: Apache-2.0
// A segment for all instances of a group. Internal to group.cc.
#ifndef HPVMD_COMPILER_BACK_LLVM_GROUP_LOOP_H_
#define HPVMD_COMPILER_BACK_LLVM_GROUP_LOOP_H_

#include "llvm/IR/Function.h"

#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/pass/gang/gang_plan.h"
#include "compiler/pass/gang/split_barriers.h"

namespace hpvm::cpu {

struct GroupLoop {
  const pass::GroupSegment* segment;
  pass::GangShape shape;   // Of `rows`; one column.
  llvm::Function* rows;    // Several rows of whole gangs at once; null when the shape has one.
  llvm::Function* whole;   // One whole gang.
  llvm::Function* masked;  // One gang, under a mask.
};

// Fills `function`, which is declared as a kernel function of the segment's loop. The instance that it is called for is
// the group's first one.
void EmitGroupLoop(ModuleEmitter& m, const GroupLoop& loop, llvm::Function* function);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GROUP_LOOP_H_
