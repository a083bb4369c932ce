// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/simd.h"

#include <vector>

#include "wabt/opcode.h"

#include "base/status.h"
#include "compiler/front/wasm/lower/simd_row.h"

namespace hpvm::wasm {
namespace {

using Table = std::array<SimdRow, wabt::Opcode::Invalid>;

const SimdRow* RowOf(uint32_t opcode) {
  static const Table* const kTable = [] {
    auto* table = new Table{};
    for (const std::span<const SimdRow> rows : {SimdMoveRows(), SimdMemoryRows(), SimdBitsRows(), SimdPackedRows(),
                                                SimdWidenRows(), SimdWideRows(), SimdFloatRows()}) {
      for (const SimdRow& row : rows) {
        const auto first = static_cast<uint32_t>(row.code.first), last = static_cast<uint32_t>(row.code.last);
        for (uint32_t code = first; code <= last; ++code) {
          SimdRow& own = (*table)[row.from + code - first];
          HPVMD_CHECK(own.lower == nullptr);
          own = row;
          own.code = static_cast<Opcode>(code);
        }
      }
    }
    return table;
  }();
  return opcode < kTable->size() && (*kTable)[opcode].lower != nullptr ? &(*kTable)[opcode] : nullptr;
}

}  // namespace

const char* SimdRefusal(uint32_t opcode) {
  return RowOf(opcode) != nullptr ? nullptr : "relaxed SIMD is not supported; build without -mrelaxed-simd";
}

void SimdLowering::Lower(const SimdInstr& instr, OperandStack& stack) {
  const SimdRow* row = RowOf(instr.opcode);
  HPVMD_CHECK(row != nullptr);
  is_used_ = true;
  SimdCall call{*row, instr, ops_, builder_, stack};
  row->lower(call);
}

// Operands precede the operations that use them in the arena.
void SimdLowering::Finish() {
  if (!is_used_) {
    return;
  }
  std::vector<bool> is_value_used(function_.values.size());
  std::vector<bool> is_op_used(function_.ops.size());
  for (size_t i = function_.ops.size(); i-- > 0;) {
    const ir::Op& op = function_.ops[i];
    bool used = ir::Info(op.code).effects != ir::kPure;
    for (uint32_t k = 0; k < op.result_count && !used; ++k) {
      used = is_value_used[op.first_result.index + k];
    }
    is_op_used[i] = used;
    for (uint32_t k = 0; k < op.operand_count && used; ++k) {
      is_value_used[function_.operands[op.first_operand + k].index] = true;
    }
  }
  for (ir::Region& region : function_.regions) {
    std::erase_if(region.ops, [&](ir::OpId id) { return !is_op_used[id.index]; });
  }
}

}  // namespace hpvm::wasm
