// SPDX-License-Identifier: Apache-2.0
// Emits the entry of a variant that runs groups: a CpuEntry over units of groups (compiler/ir/cpu_abi.h), for a kernel
// cut at its barriers (compiler/pass/gang/split_barriers.h). Internal to this folder.
//
// The driver is an ordinary function, of the group's first instance. Between barriers it calls a loop over the group's
// gangs, which a gang function runs: several rows of gangs at once where they fit, otherwise one gang under a mask.
// The values that instances keep are in CpuContext::group_values, gang by gang, y fastest; within a gang value by
// value, lane by lane.
#ifndef HPVMD_COMPILER_BACK_LLVM_GROUP_H_
#define HPVMD_COMPILER_BACK_LLVM_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/api/report.h"
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/pass/gang/gang_plan.h"

namespace hpvm::cpu {

struct GroupEntry {
  std::string name;
  pass::GangShape shape;                      // One column.
  bool is_unchecked = false;                  // As GangFunction.
  const std::vector<bool>* proven = nullptr;  // Indexed by OpId of the entry.
};

struct GroupCode {
  uint32_t value_bytes = 0;            // CpuVariant's.
  std::vector<std::string> functions;  // Further functions that belong to it.
};

// Adds to `m`, which already has its functions and which RefuseGang accepts. Returns kUnimplemented with the reason
// when the kernel cannot run by groups; code added by then is unused. `report` may be null.
StatusOr<GroupCode> EmitGroupEntry(ModuleEmitter& m, const GroupEntry& entry, KernelReport* report);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GROUP_H_
