// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/op_flow.h"

#include "compiler/ir/spelling.h"
#include "compiler/ir/walk.h"

namespace hpvm {

using ir::Op;
using ir::Opcode;
using ir::OpId;

OpFlow FindOpFlow(const ir::Function& function) {
  OpFlow flow;
  flow.next.resize(function.ops.size());
  flow.previous.resize(function.ops.size());
  std::vector<OpId> behind(function.ops.size());  // The next one in the same region.
  auto note = [&](ir::RegionId region) {
    const std::vector<OpId>& ops = function.region(region).ops;
    for (size_t i = 0; i + 1 < ops.size(); ++i) {
      behind[ops[i].index] = ops[i + 1];
    }
  };
  note(function.body);
  ir::ForEachOp(function, [&](OpId id) {
    const Op& op = function.op(id);
    if (ir::OwnsRegions(op.code)) {
      note(op.body);
    }
    if (op.code == Opcode::kIf) {
      note(op.otherwise);
    }
  });
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
                                       : behind[target.op.index]);
      }
    } else {
      connect(id, behind[id.index]);
    }
  });
  return flow;
}

}  // namespace hpvm
