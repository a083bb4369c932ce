// SPDX-License-Identifier: Apache-2.0
// The order in which operations may run, as a graph over a function's operations.
//
// Structured operations stand for their beginning: a block is followed by the first operation of its region, an if by
// those of both; a leave by what stands behind the operation that it leaves.
#ifndef HPVMD_COMPILER_ANALYSIS_OP_FLOW_H_
#define HPVMD_COMPILER_ANALYSIS_OP_FLOW_H_

#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct OpFlow {
  // By OpId; empty for operations that end the instance, and for those outside the function's body.
  std::vector<std::vector<ir::OpId>> next, previous;
};

OpFlow FindOpFlow(const ir::Function& function);

// Calls visit(OpId) once for each operation of `from` and of what the edges, OpFlow's next or previous, lead on to from
// those for which it returns true.
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
