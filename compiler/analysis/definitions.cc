// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/definitions.h"

#include "compiler/ir/walk.h"

namespace hpvm {

Definitions::Definitions(const ir::Function& function) : function_(function), definitions_(function.values.size()) {
  ir::ForEachOp(function, [&](ir::OpId id) {
    const ir::Op& op = function.op(id);
    for (uint32_t i = 0; i < op.result_count; ++i) {
      definitions_[op.first_result.index + i] = id;
    }
  });
}

}  // namespace hpvm
