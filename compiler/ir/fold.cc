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

}  // namespace

std::optional<uint64_t> FoldInteger(const Op& op, Type result, std::span<const std::optional<uint64_t>> operands) {
  if (op.code == Opcode::kConst) {
    return op.imm;
  }
  if (operands.empty() || !IsInt(result) || !IsInt(op.type) ||
      std::any_of(operands.begin(), operands.end(), [](const std::optional<uint64_t>& bits) { return !bits; })) {
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
