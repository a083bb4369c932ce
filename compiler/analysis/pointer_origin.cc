// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/pointer_origin.h"

#include <algorithm>

namespace hpvm::analysis {
namespace {

using Base = PointerOrigin::Base;
using How = PointerOrigin::How;

bool IsUnset(const PointerOrigin& origin) { return origin.base == Base::kUnset; }
bool IsNumber(const PointerOrigin& origin) { return origin.base == Base::kNumber; }
bool IsGuess(const PointerOrigin& origin) { return origin.base == Base::kGroup || origin.base == Base::kParam; }

PointerOrigin SumOf(const PointerOrigin& a, const PointerOrigin& b) {
  if (IsUnset(a) || IsUnset(b)) {
    return {};
  }
  if (IsNumber(a) || (a.base == Base::kAny && IsGuess(b))) {
    return b;
  }
  return IsNumber(b) || (b.base == Base::kAny && IsGuess(a)) ? a : PointerOrigin::Any();
}

// The difference of two addresses is a number.
PointerOrigin DifferenceOf(const PointerOrigin& a, const PointerOrigin& b) {
  if (IsUnset(a) || IsUnset(b)) {
    return {};
  }
  return IsNumber(b) || (b.base == Base::kAny && IsGuess(a)) ? a : PointerOrigin::Number();
}

PointerOrigin BaseOf(const ir::Op& op, const std::array<PointerOrigin, 3>& of, bool rounds_down) {
  const PointerOrigin number = IsUnset(of[0]) ? PointerOrigin() : PointerOrigin::Number();
  switch (op.code) {
    case Opcode::kAdd:
    case Opcode::kOr:  // Adds an offset to an aligned address.
      return SumOf(of[0], of[1]);
    case Opcode::kSub:
      return DifferenceOf(of[0], of[1]);
    case Opcode::kAnd:
      return rounds_down ? SumOf(of[0], of[1]) : IsUnset(of[1]) ? PointerOrigin() : number;
    case Opcode::kSelect:
      return Join(of[1], of[2]);
    case Opcode::kWrap:
    case Opcode::kExtendS:
    case Opcode::kExtendU:
      return of[0];
    case Opcode::kLocalAlloc:
      return {Base::kGroup, How::kPlain, 0};
    default:
      break;
  }
  switch (ir::Info(op.code).family) {
    case ir::Family::kConst:
    case ir::Family::kQuery:
    case ir::Family::kIntUnary:
    case ir::Family::kIntCompare:
    case ir::Family::kFloatCompare:
      return PointerOrigin::Number();
    case ir::Family::kIntBinary:
      return IsUnset(of[1]) ? PointerOrigin() : number;
    case ir::Family::kConvert:
      return number;
    default:
      return PointerOrigin::Any();
  }
}

How HowOf(const ir::Op& op, const std::array<PointerOrigin, 3>& of) {
  if (op.result_count != 1 || (ir::Info(op.code).effects & (ir::kReads | ir::kControl)) != 0) {
    return How::kPlain;
  }
  How how = How::kPlain;
  for (uint32_t i = 0; i < op.operand_count && i < of.size(); ++i) {
    how = std::max(how, of[i].how);
  }
  const bool keeps = op.code == Opcode::kAdd || op.code == Opcode::kSub || op.code == Opcode::kSelect ||
                     ir::Info(op.code).family == ir::Family::kIntCompare;
  return how == How::kSums && !keeps ? How::kBits : how;
}

}  // namespace

PointerOrigin Join(const PointerOrigin& a, const PointerOrigin& b) {
  if (IsUnset(a) || IsUnset(b)) {
    return IsUnset(a) ? b : a;
  }
  const bool is_same = a.base == b.base && a.param == b.param;
  return {is_same ? a.base : Base::kAny, std::max(a.how, b.how), is_same ? a.param : 0};
}

PointerOrigin OriginOf(const ir::Op& op, const std::array<PointerOrigin, 3>& operands, bool rounds_down) {
  PointerOrigin origin = BaseOf(op, operands, rounds_down);
  origin.how = HowOf(op, operands);
  return origin;
}

}  // namespace hpvm::analysis
