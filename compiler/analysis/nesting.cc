// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/nesting.h"

#include <algorithm>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {

Nesting::Nesting(const ir::Function& function)
    : function_(function), places_(function.ops.size()), makers_(function.values.size()) {
  const auto enter = [&](ir::RegionId id, uint32_t depth) {
    const std::vector<OpId>& ops = function.region(id).ops;
    for (uint32_t i = 0; i < ops.size(); ++i) {
      places_[ops[i].index] = {id, i, depth};
    }
  };
  const auto make = [&](const ir::Slots& slots, OpId maker) {
    std::fill_n(makers_.begin() + slots.first.index, slots.count, maker);
  };
  enter(function.body, 0);
  ir::ForEachOp(function, [&](OpId id) {
    const Op& op = function.op(id);
    places_[id.index].number = static_cast<uint32_t>(order_.size());
    order_.push_back(id);
    if (op.result_count != 0) {
      make(ir::ResultsOf(op), id);
    }
    if (ir::OwnsRegions(op.code)) {
      enter(op.body, DepthOf(id) + 1);
      if (function.region(op.body).param_count != 0) {
        make(ir::ParamsOf(function.region(op.body)), id);
      }
    }
    if (op.code == ir::Opcode::kIf) {
      enter(op.otherwise, DepthOf(id) + 1);
    }
  });
  // An operation precedes the operations nested in it.
  for (size_t i = order_.size(); i-- > 0;) {
    const Op& op = function.op(order_[i]);
    places_[order_[i].index].end =
        !ir::OwnsRegions(op.code)
            ? static_cast<uint32_t>(i + 1)
            : places_[function.region(op.code == ir::Opcode::kIf ? op.otherwise : op.body).ops.back().index].end;
  }
}

}  // namespace hpvm::analysis
