// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/or_to_add.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/trailing_zeros.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

// How many operations WidthOf looks back: an `or` costs at most 2^4 looks.
constexpr int kDepthMax = 4;

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
  // Whether the bits of one operand all lie below the lowest that may be set in the other.
  bool IsBelow(const Op& op, uint32_t low, uint32_t high) const {
    return WidthOf(Operand(op, low), 0) <= zeros_[Operand(op, high).index];
  }
  // How many low bits hold everything that is set in a value.
  uint32_t WidthOf(ValueId value, int depth) const {
    const uint32_t all = 8 * ir::Bytes(f_.type_of(value));
    const Op* definition = definitions_.OpOf(value);
    if (definition == nullptr || depth == kDepthMax) {
      return all;
    }
    const Op& op = *definition;
    const auto width_at = [&](uint32_t i) { return WidthOf(Operand(op, i), depth + 1); };
    switch (op.code) {
      case Opcode::kConst:
        return static_cast<uint32_t>(std::bit_width(all == 32 ? op.imm & 0xffffffffu : op.imm));
      case Opcode::kAnd:
        return std::min(width_at(0), width_at(1));
      case Opcode::kOr:
      case Opcode::kXor:
        return std::max(width_at(0), width_at(1));
      case Opcode::kSelect:
        return std::max(width_at(1), width_at(2));
      case Opcode::kExtendU:
        return width_at(0);
      default:
        return ir::Info(op.code).family == ir::Family::kIntCompare ? 1 : all;
    }
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
