// SPDX-License-Identifier: Apache-2.0
// The entry of a variant that runs groups: CpuEntry over units of groups (compiler/ir/cpu_abi.h), from a kernel cut at
// its barriers (compiler/pass/gang/split_barriers.h). Internal to this folder.
//
// The driver is a function like any other, of the group's first instance. Between barriers it calls a loop over the
// group's gangs, which a gang function runs: rows of gangs as a whole where they fit, one gang under a mask where not.
// What instances keep lies in CpuContext::group_values, gang by gang, y fastest; in a gang value by value, lane by
// lane.
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
  const std::vector<bool>* proven = nullptr;  // By OpId of the entry.
};

struct GroupCode {
  uint32_t value_bytes = 0;            // CpuVariant's.
  std::vector<std::string> functions;  // That it is made of, besides.
};

// Adds to `m`, whose functions are there already and which RefuseGang does not refuse. kUnimplemented with the reason
// when the kernel cannot be run by groups; what was added by then is unused. `report` may be null.
StatusOr<GroupCode> EmitGroupEntry(ModuleEmitter& m, const GroupEntry& entry, KernelReport* report);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GROUP_H_
