// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/op_flow.h"

#include "compiler/analysis/nesting.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {

OpFlow FindOpFlow(const ir::Function& function) {
  OpFlow flow;
  flow.next.resize(function.ops.size());
  flow.previous.resize(function.ops.size());
  const Nesting nesting(function);
  auto connect = [&](OpId from, OpId to) {
    flow.next[from.index].push_back(to);
    flow.previous[to.index].push_back(from);
  };
  ir::ForEachOp(function, [&](OpId id) {
    const Op& op = function.op(id);
    if (ir::OwnsRegions(op.code)) {
      connect(id, function.region(op.body).ops.front());
      if (op.code == Opcode::kIf) {
        connect(id, function.region(op.otherwise).ops.front());
      }
    } else if (ir::IsTerminator(op.code)) {
      for (const ir::Target& target : function.targets_of(op)) {
        connect(id, target.is_continue ? function.region(function.op(target.op).body).ops.front()
                                       : nesting.Behind(target.op));
      }
    } else {
      connect(id, nesting.Behind(id));
    }
  });
  return flow;
}

}  // namespace hpvm::analysis
