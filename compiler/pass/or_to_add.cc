// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/or_to_add.h"

#include <bit>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/trailing_zeros.h"
#include "compiler/ir/fold.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

class Rewriter {
 public:
  explicit Rewriter(ir::Function& function)
      : f_(function), definitions_(function), zeros_(analysis::FindTrailingZeros(function, analysis::KnownZeros())) {}
  void Run() {
    ir::ForEachOp(f_, [&](OpId id) {
      Op& op = f_.op(id);
      if (op.code == Opcode::kOr && (IsBelow(op, 0, 1) || IsBelow(op, 1, 0))) {
        op.code = Opcode::kAdd;
      }
    });
  }

 private:
  ValueId Operand(const Op& op, uint32_t i) const { return f_.operands_of(op)[i]; }
  // Returns true if all bits of operand `low` lie below the lowest bit that may be set in operand `high`.
  bool IsBelow(const Op& op, uint32_t low, uint32_t high) const {
    const auto definition_of = [this](ValueId value) { return definitions_.OpOf(value); };
    return std::bit_width(ir::PossibleBits(f_, definition_of, Operand(op, low))) <= zeros_[Operand(op, high).index];
  }
  ir::Function& f_;
  const analysis::Definitions definitions_;
  const std::vector<uint8_t> zeros_;
};

}  // namespace

Status OrToAdd(ir::Module& module) {
  for (ir::Function& function : module.functions) {
    Rewriter(function).Run();
  }
  return absl::OkStatus();
}

}  // namespace hpvm::pass
