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
Handler HandlerOf(const Op& op) {
  using S = Signed<U>;
  static constexpr Handler kUnary[] = {Unary<Clz<U>, U>,
                                       Unary<Ctz<U>, U>,
                                       Unary<Popcnt<U>, U>,
                                       Unary<SignExtend<U, int8_t>, U>,
                                       Unary<SignExtend<U, int16_t>, U>,
                                       Unary<SignExtend<U, int32_t>, U>};
  static constexpr Handler kBinary[] = {Binary<std::plus<U>{}, U>,
                                        Binary<std::minus<U>{}, U>,
                                        Binary<std::multiplies<U>{}, U>,
                                        SignedDivision<U>,
                                        Division<DivU<U>, U>,
                                        Division<RemS<U>, U>,
                                        Division<RemU<U>, U>,
                                        Binary<std::bit_and<U>{}, U>,
                                        Binary<std::bit_or<U>{}, U>,
                                        Binary<std::bit_xor<U>{}, U>,
                                        Binary<Shl<U>, U>,
                                        Binary<ShrS<U>, U>,
                                        Binary<ShrU<U>, U>,
                                        Binary<Rotl<U>, U>,
                                        Binary<Rotr<U>, U>};
  static constexpr Handler kCompare[] = {
      Eqz<U>,
      Compare<U, std::equal_to<>{}>,
      Compare<U, std::not_equal_to<>{}>,
      Compare<S, std::less<>{}>,
      Compare<U, std::less<>{}>,
      Compare<S, std::greater<>{}>,
      Compare<U, std::greater<>{}>,
      Compare<S, std::less_equal<>{}>,
      Compare<U, std::less_equal<>{}>,
      Compare<S, std::greater_equal<>{}>,
      Compare<U, std::greater_equal<>{}>,
  };
  switch (Info(op.code).family) {
    case Family::kIntUnary:
      return RowOf(kUnary, Opcode::kClz, op.code);
    case Family::kIntBinary:
      return RowOf(kBinary, Opcode::kAdd, op.code);
    default:
      return RowOf(kCompare, Opcode::kEqz, op.code);
  }
}

}  // namespace

Handler IntegerHandler(const Op& op) {
  return op.type == Type::kI32 ? HandlerOf<uint32_t>(op) : HandlerOf<uint64_t>(op);
}

}  // namespace hpvm::ir
