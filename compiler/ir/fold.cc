// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/fold.h"

#include <algorithm>
#include <type_traits>

namespace hpvm::ir {
namespace {

template <typename U>
std::optional<uint64_t> Fold(Opcode code, U a, U b) {
  using Signed = std::make_signed_t<U>;
  constexpr U kBits = 8 * sizeof(U);
  const auto sa = static_cast<Signed>(a), sb = static_cast<Signed>(b);
  switch (code) {
    case Opcode::kAdd:
      return static_cast<U>(a + b);
    case Opcode::kSub:
      return static_cast<U>(a - b);
    case Opcode::kMul:
      return static_cast<U>(a * b);
    case Opcode::kDivU:
      return b == 0 ? std::nullopt : std::optional<uint64_t>(a / b);
    case Opcode::kRemU:
      return b == 0 ? std::nullopt : std::optional<uint64_t>(a % b);
    case Opcode::kDivS:  // The divisor -1 traps for the least number.
      return sb == 0 || sb == -1 ? std::nullopt : std::optional<uint64_t>(static_cast<U>(sa / sb));
    case Opcode::kRemS:
      return sb == 0 || sb == -1 ? std::nullopt : std::optional<uint64_t>(static_cast<U>(sa % sb));
    case Opcode::kAnd:
      return a & b;
    case Opcode::kOr:
      return a | b;
    case Opcode::kXor:
      return a ^ b;
    case Opcode::kShl:
      return static_cast<U>(a << (b % kBits));
    case Opcode::kShrU:
      return a >> (b % kBits);
    case Opcode::kShrS:
      return static_cast<U>(sa >> (b % kBits));
    case Opcode::kEqz:
      return a == 0 ? 1 : 0;
    case Opcode::kEq:
      return a == b ? 1 : 0;
    case Opcode::kNe:
      return a != b ? 1 : 0;
    case Opcode::kLtS:
      return sa < sb ? 1 : 0;
    case Opcode::kLtU:
      return a < b ? 1 : 0;
    case Opcode::kGtS:
      return sa > sb ? 1 : 0;
    case Opcode::kGtU:
      return a > b ? 1 : 0;
    case Opcode::kLeS:
      return sa <= sb ? 1 : 0;
    case Opcode::kLeU:
      return a <= b ? 1 : 0;
    case Opcode::kGeS:
      return sa >= sb ? 1 : 0;
    case Opcode::kGeU:
      return a >= b ? 1 : 0;
    default:
      return std::nullopt;
  }
}

// Depth to which PossibleBits follows operands: an `or` costs at most 2^4 visits.
constexpr int kBitsDepthMax = 4;

using DefinitionOf = absl::FunctionRef<const Op*(ValueId)>;

uint64_t BitsOf(const Function& function, DefinitionOf definition_of, ValueId value, int depth) {
  const uint64_t ones = function.type_of(value) == Type::kI32 ? 0xffffffffu : ~uint64_t{0};
  const Op* op = definition_of(value);
  if (op == nullptr || depth == kBitsDepthMax) {
    return ones;
  }
  const std::span<const ValueId> operands = function.operands_of(*op);
  const auto bits_of = [&](size_t i) { return BitsOf(function, definition_of, operands[i], depth + 1); };
  switch (op->code) {
    case Opcode::kConst:
      return op->imm & ones;
    case Opcode::kAnd:
      return bits_of(0) & bits_of(1);
    case Opcode::kOr:
    case Opcode::kXor:
      return bits_of(0) | bits_of(1);
    case Opcode::kSelect:
      return bits_of(1) | bits_of(2);
    case Opcode::kExtendU:
      return bits_of(0);
    case Opcode::kLoad:
      return op->width < Bytes(op->type) && !op->sign ? (uint64_t{1} << (op->width * 8)) - 1 : ones;
    case Opcode::kShl:
    case Opcode::kShrU: {
      const Op* count = definition_of(operands[1]);
      if (count == nullptr || count->code != Opcode::kConst) {
        return ones;
      }
      const uint64_t by = count->imm % (Bytes(op->type) * 8);
      return op->code == Opcode::kShl ? bits_of(0) << by & ones : bits_of(0) >> by;
    }
    default: {
      const Family family = Info(op->code).family;
      return family == Family::kIntCompare || family == Family::kFloatCompare ? 1 : ones;
    }
  }
}

}  // namespace

uint64_t PossibleBits(const Function& function, DefinitionOf definition_of, ValueId value) {
  return BitsOf(function, definition_of, value, 0);
}

std::optional<uint64_t> FoldInteger(const Op& op, Type result, std::span<const std::optional<uint64_t>> operands) {
  if (op.code == Opcode::kConst) {
    return op.imm;
  }
  if (operands.empty() || !IsInt(result) || !IsInt(op.type) ||
      std::ranges::any_of(operands, [](const std::optional<uint64_t>& bits) { return !bits; })) {
    return std::nullopt;
  }
  switch (op.code) {
    case Opcode::kSelect:
      return *operands[0] != 0 ? operands[1] : operands[2];
    case Opcode::kWrap:
      return static_cast<uint32_t>(*operands[0]);
    case Opcode::kExtendU:
      return operands[0];
    case Opcode::kExtendS:
      return static_cast<uint64_t>(int64_t{static_cast<int32_t>(static_cast<uint32_t>(*operands[0]))});
    default:
      break;
  }
  const uint64_t a = *operands[0], b = operands.size() > 1 ? *operands[1] : 0;
  return Bytes(op.type) == 4 ? Fold(op.code, static_cast<uint32_t>(a), static_cast<uint32_t>(b)) : Fold(op.code, a, b);
}

}  // namespace hpvm::ir
