// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/definitions.h"

#include "compiler/ir/walk.h"

namespace hpvm::analysis {

Definitions::Definitions(const ir::Function& function) : function_(function), definitions_(function.values.size()) {
  ir::ForEachOp(function, [&](ir::OpId id) {
    const ir::Op& op = function.op(id);
    for (uint32_t i = 0; i < op.result_count; ++i) {
      definitions_[op.first_result.index + i] = id;
    }
  });
}

std::vector<std::vector<ir::ValueId>> FindSources(const ir::Function& function) {
  std::vector<std::vector<ir::ValueId>> sources(function.values.size());
  ir::ForEachOp(function, [&](ir::OpId id) {
    ir::ForEachBrought(function, function.op(id),
                       [&](ir::ValueId slot, ir::ValueId value) { sources[slot.index].push_back(value); });
  });
  return sources;
}

const ir::Op* ReciprocalRootIn(const Definitions& definitions, const ir::Function& function, const ir::Op& divide) {
  constexpr uint64_t kOne = 0x3f800000;
  if (divide.code != ir::Opcode::kFDiv || divide.type != ir::Type::kF32 ||
      definitions.ConstantOf(function.operands_of(divide)[0]) != kOne) {
    return nullptr;
  }
  return definitions.OpOf(function.operands_of(divide)[1], ir::Opcode::kFSqrt);
}

}  // namespace hpvm::analysis
