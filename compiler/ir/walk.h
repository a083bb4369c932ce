// SPDX-License-Identifier: Apache-2.0
// Visits a function's operations in the order of the text form.
#ifndef HPVMD_COMPILER_IR_WALK_H_
#define HPVMD_COMPILER_IR_WALK_H_

#include <utility>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::ir {

// Calls visit(OpId) for every operation reachable from the body; an operation comes before those in its regions. Not
// recursive. The callback must not add or remove operations.
template <typename Visit>
void ForEachOp(const Function& function, Visit&& visit) {
  std::vector<std::pair<RegionId, size_t>> open;
  if (function.body.valid()) {
    open.push_back({function.body, 0});
  }
  while (!open.empty()) {
    auto& [region_id, next] = open.back();
    const Region& region = function.region(region_id);
    if (next == region.ops.size()) {
      open.pop_back();
      continue;
    }
    const OpId id = region.ops[next++];
    visit(id);
    const Op& op = function.op(id);
    if (op.code == Opcode::kIf) {
      open.push_back({op.otherwise, 0});
    }
    if (op.code == Opcode::kIf || op.code == Opcode::kBlock || op.code == Opcode::kLoop) {
      open.push_back({op.body, 0});
    }
  }
}

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_WALK_H_
