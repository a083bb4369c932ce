// SPDX-License-Identifier: Apache-2.0
// Which operation runs after which, as a graph over a function's operations.
//
// Structured operations stand for their beginning: a block is followed by the first operation of its region, an if by
// those of both; a leave by what stands behind the operation that it leaves.
#ifndef HPVMD_COMPILER_PASS_OP_FLOW_H_
#define HPVMD_COMPILER_PASS_OP_FLOW_H_

#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm {

struct OpFlow {
  // By OpId; empty for operations that end the instance, and for those outside the function's body.
  std::vector<std::vector<ir::OpId>> next, previous;
};

OpFlow FindOpFlow(const ir::Function& function);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_PASS_OP_FLOW_H_
