// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interpret/machine.h"
#include "compiler/ir/numeric.h"

namespace hpvm::ir {
namespace {

using namespace numeric;

template <typename From, typename To>
const Code* Cast(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = ToBits(static_cast<To>(FromBits<From>(frame[code->a])));
  return code + 1;
}

template <typename From, typename To>
const Code* Trunc(const Code* code, uint64_t* frame, Instance& instance) {
  const From value = FromBits<From>(frame[code->a]);
  if (!TruncFits<To>(value)) {
    return instance.Trap(value == value ? TrapCode::kIntegerOverflow : TrapCode::kInvalidConversion, code);
  }
  frame[code->result] = ToBits(static_cast<To>(value));
  return code + 1;
}

template <typename From, typename To>
const Code* Saturate(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = ToBits(TruncSat<To>(FromBits<From>(frame[code->a])));
  return code + 1;
}

template <typename From, typename To>
Handler FromFloat(Opcode code) {
  switch (code) {
    case Opcode::kTruncS:
      return Trunc<From, Signed<To>>;
    case Opcode::kTruncU:
      return Trunc<From, To>;
    case Opcode::kTruncSatS:
      return Saturate<From, Signed<To>>;
    default:
      return Saturate<From, To>;
  }
}

template <typename From>
Handler FromFloat(Opcode code, Type result) {
  return result == Type::kI32 ? FromFloat<From, uint32_t>(code) : FromFloat<From, uint64_t>(code);
}

template <typename From>
Handler ToFloat(Type result) {
  return result == Type::kF32 ? Cast<From, float> : Cast<From, double>;
}

}  // namespace

Handler ConversionHandler(const Op& op, Type result) {
  const bool is_i32 = op.type == Type::kI32;
  switch (op.code) {
    case Opcode::kWrap:
      return Cast<uint64_t, uint32_t>;
    case Opcode::kExtendS:
      return Cast<int32_t, int64_t>;
    case Opcode::kExtendU:
    case Opcode::kReinterpret:  // Slots hold bits.
      return step::Move;
    case Opcode::kConvertS:
      return is_i32 ? ToFloat<int32_t>(result) : ToFloat<int64_t>(result);
    case Opcode::kConvertU:
      return is_i32 ? ToFloat<uint32_t>(result) : ToFloat<uint64_t>(result);
    case Opcode::kDemote:
      return Cast<double, float>;
    case Opcode::kPromote:
      return Cast<float, double>;
    default:
      return op.type == Type::kF32 ? FromFloat<float>(op.code, result) : FromFloat<double>(op.code, result);
  }
}

}  // namespace hpvm::ir
