// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/edge_forms.h"

#include <bit>
#include <optional>

namespace hpvm::analysis {
namespace {

using Kind = EdgeForm::Kind;

std::optional<uint64_t> ConstantAt(const ir::Function& f, const Definitions& definitions, const Op& op,
                                   uint32_t operand) {
  const std::optional<uint64_t> bits = definitions.ConstantOf(f.operands_of(op)[operand]);
  return bits.has_value() && op.type == ir::Type::kI32 ? std::optional(*bits & 0xffffffffu) : bits;
}

}  // namespace

EdgeForm FindEdgeForm(const ir::Function& function, const Definitions& definitions, const Op& op) {
  if (!ir::IsInt(op.type)) {
    return {};
  }
  switch (op.code) {
    case Opcode::kSelect:
      return {.kind = Kind::kChoice};
    case Opcode::kRemU:
    case Opcode::kRemS:
    case Opcode::kDivU:
    case Opcode::kDivS: {
      const bool is_signed = op.code == Opcode::kRemS || op.code == Opcode::kDivS;
      const uint64_t divisor = ConstantAt(function, definitions, op, 1).value_or(0);
      if (is_signed && ir::SignedBits(op.type, divisor) < 0) {
        return {};
      }
      const bool is_remainder = op.code == Opcode::kRemU || op.code == Opcode::kRemS;
      return {.kind = is_remainder ? Kind::kRemainder : Kind::kQuotient, .divisor = divisor};
    }
    case Opcode::kAnd: {
      const std::optional<uint64_t> mask = ConstantAt(function, definitions, op, 1);
      return mask.has_value() && std::has_single_bit(*mask + 1)
                 ? EdgeForm{.kind = Kind::kRemainder, .divisor = *mask + 1, .is_of_bits = true}
                 : EdgeForm();
    }
    case Opcode::kShrU:
    case Opcode::kShrS: {
      const std::optional<uint64_t> count = ConstantAt(function, definitions, op, 1);
      return count.has_value() && *count < 8 * ir::Bytes(op.type)
                 ? EdgeForm{.kind = Kind::kQuotient, .divisor = uint64_t{1} << *count, .is_of_bits = true}
                 : EdgeForm();
    }
    default:
      return {};
  }
}

uint32_t UsualOperand(const ir::Function& function, const Definitions& definitions, const Op& select,
                      uint64_t first_step, uint64_t second_step) {
  const int64_t first = ir::SignedBits(select.type, first_step), second = ir::SignedBits(select.type, second_step);
  if ((first == 0) != (second == 0)) {
    return first != 0 ? 1 : 2;
  }
  if (first != second) {  // A mirrored index runs backwards.
    return first > second ? 1 : 2;
  }
  const ir::ValueId condition = function.operands_of(select)[0];
  const bool is_rare =
      definitions.OpOf(condition, Opcode::kEq) != nullptr || definitions.OpOf(condition, Opcode::kEqz) != nullptr;
  return is_rare ? 2 : 1;
}

}  // namespace hpvm::analysis
