// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "compiler/ir/interpret/machine.h"
#include "compiler/ir/numeric.h"

namespace hpvm::ir {
namespace {

using namespace numeric;

template <auto kCompute, typename U>
const Code* Unary(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = kCompute(static_cast<U>(frame[code->a]));
  return code + 1;
}

template <auto kCompute, typename U>
const Code* Binary(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = kCompute(static_cast<U>(frame[code->a]), static_cast<U>(frame[code->b]));
  return code + 1;
}

template <auto kCompute, typename U>
const Code* Division(const Code* code, uint64_t* frame, Instance& instance) {
  const U a = static_cast<U>(frame[code->a]), b = static_cast<U>(frame[code->b]);
  if (b == 0) {
    return instance.Trap(TrapCode::kDivideByZero, code);
  }
  frame[code->result] = kCompute(a, b);
  return code + 1;
}

template <typename U>
const Code* SignedDivision(const Code* code, uint64_t* frame, Instance& instance) {
  const U a = static_cast<U>(frame[code->a]), b = static_cast<U>(frame[code->b]);
  if (b == 0 || DivSOverflows(a, b)) {
    return instance.Trap(b == 0 ? TrapCode::kDivideByZero : TrapCode::kIntegerOverflow, code);
  }
  frame[code->result] = DivS(a, b);
  return code + 1;
}

// T is signed or unsigned, as the comparison is.
template <typename T, auto kHolds>
const Code* Compare(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = kHolds(static_cast<T>(frame[code->a]), static_cast<T>(frame[code->b])) ? 1 : 0;
  return code + 1;
}

template <typename U>
const Code* Eqz(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = static_cast<U>(frame[code->a]) == 0 ? 1 : 0;
  return code + 1;
}

template <typename U>
Handler UnaryHandler(Opcode code) {
  switch (code) {
    case Opcode::kClz:
      return Unary<Clz<U>, U>;
    case Opcode::kCtz:
      return Unary<Ctz<U>, U>;
    case Opcode::kPopcnt:
      return Unary<Popcnt<U>, U>;
    case Opcode::kExtend8:
      return Unary<SignExtend<U, int8_t>, U>;
    case Opcode::kExtend16:
      return Unary<SignExtend<U, int16_t>, U>;
    default:
      return Unary<SignExtend<U, int32_t>, U>;
  }
}

template <typename U>
Handler BinaryHandler(Opcode code) {
  switch (code) {
    case Opcode::kAdd:
      return Binary<std::plus<U>{}, U>;
    case Opcode::kSub:
      return Binary<std::minus<U>{}, U>;
    case Opcode::kMul:
      return Binary<std::multiplies<U>{}, U>;
    case Opcode::kDivS:
      return SignedDivision<U>;
    case Opcode::kDivU:
      return Division<DivU<U>, U>;
    case Opcode::kRemS:
      return Division<RemS<U>, U>;
    case Opcode::kRemU:
      return Division<RemU<U>, U>;
    case Opcode::kAnd:
      return Binary<std::bit_and<U>{}, U>;
    case Opcode::kOr:
      return Binary<std::bit_or<U>{}, U>;
    case Opcode::kXor:
      return Binary<std::bit_xor<U>{}, U>;
    case Opcode::kShl:
      return Binary<Shl<U>, U>;
    case Opcode::kShrS:
      return Binary<ShrS<U>, U>;
    case Opcode::kShrU:
      return Binary<ShrU<U>, U>;
    case Opcode::kRotl:
      return Binary<Rotl<U>, U>;
    default:
      return Binary<Rotr<U>, U>;
  }
}

template <typename U>
Handler CompareHandler(Opcode code) {
  using S = Signed<U>;
  switch (code) {
    case Opcode::kEqz:
      return Eqz<U>;
    case Opcode::kEq:
      return Compare<U, std::equal_to<>{}>;
    case Opcode::kNe:
      return Compare<U, std::not_equal_to<>{}>;
    case Opcode::kLtS:
      return Compare<S, std::less<>{}>;
    case Opcode::kLtU:
      return Compare<U, std::less<>{}>;
    case Opcode::kGtS:
      return Compare<S, std::greater<>{}>;
    case Opcode::kGtU:
      return Compare<U, std::greater<>{}>;
    case Opcode::kLeS:
      return Compare<S, std::less_equal<>{}>;
    case Opcode::kLeU:
      return Compare<U, std::less_equal<>{}>;
    case Opcode::kGeS:
      return Compare<S, std::greater_equal<>{}>;
    default:
      return Compare<U, std::greater_equal<>{}>;
  }
}

template <typename U>
Handler HandlerOf(const Op& op) {
  switch (Info(op.code).family) {
    case Family::kIntUnary:
      return UnaryHandler<U>(op.code);
    case Family::kIntBinary:
      return BinaryHandler<U>(op.code);
    default:
      return CompareHandler<U>(op.code);
  }
}

}  // namespace

Handler IntegerHandler(const Op& op) {
  return op.type == Type::kI32 ? HandlerOf<uint32_t>(op) : HandlerOf<uint64_t>(op);
}

}  // namespace hpvm::ir
