// SPDX-License-Identifier: Apache-2.0
// OpFlow is a control-flow graph over a function's operations.
//
// A structured operation represents its own start. The successor of a block or loop is the first operation of its
// region; the successors of an if are the first operations of both regions; the successor of a br is the operation
// after the construct that it leaves.
#ifndef HPVMD_COMPILER_ANALYSIS_OP_FLOW_H_
#define HPVMD_COMPILER_ANALYSIS_OP_FLOW_H_

#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct OpFlow {
  // Indexed by OpId; empty for operations that end the instance, and for operations outside the function's body.
  std::vector<std::vector<ir::OpId>> next, previous;
};

OpFlow FindOpFlow(const ir::Function& function);

// Calls visit(OpId) once for each operation of `from` and for each successor, along `edges` (OpFlow's next or
// previous), of an operation for which visit returns true.
template <typename Visit>
void FollowFlow(const std::vector<std::vector<ir::OpId>>& edges, std::vector<ir::OpId> from, Visit&& visit) {
  std::vector<bool> seen(edges.size());
  while (!from.empty()) {
    const ir::OpId id = from.back();
    from.pop_back();
    if (seen[id.index]) {
      continue;
    }
    seen[id.index] = true;
    if (visit(id)) {
      from.insert(from.end(), edges[id.index].begin(), edges[id.index].end());
    }
  }
}

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_OP_FLOW_H_
