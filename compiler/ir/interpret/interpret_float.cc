// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>

#include "compiler/ir/interpret/machine.h"
#include "compiler/ir/numeric.h"

namespace hpvm::ir {
namespace {

using namespace numeric;

template <typename F, F (*kCompute)(F)>
const Code* Unary(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = ToBits(kCompute(FromBits<F>(frame[code->a])));
  return code + 1;
}

// Computes the rounded exact value.
template <double (*kCompute)(double)>
const Code* Approx(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = ToBits(static_cast<float>(kCompute(FromBits<float>(frame[code->a]))));
  return code + 1;
}

template <typename F, auto kCompute>
const Code* Binary(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = ToBits(kCompute(FromBits<F>(frame[code->a]), FromBits<F>(frame[code->b])));
  return code + 1;
}

template <typename F, auto kHolds>
const Code* Compare(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = kHolds(FromBits<F>(frame[code->a]), FromBits<F>(frame[code->b])) ? 1 : 0;
  return code + 1;
}

template <typename F>
Handler HandlerOf(const Op& op) {
  static constexpr Handler kUnary[] = {Unary<F, FAbs<F>>,   Unary<F, FNeg<F>>,   Unary<F, FCeil<F>>,
                                       Unary<F, FFloor<F>>, Unary<F, FTrunc<F>>, Unary<F, FNearest<F>>,
                                       Unary<F, FSqrt<F>>};
  static constexpr Handler kApprox[] = {Approx<std::sin>, Approx<std::cos>, Approx<std::exp2>, Approx<std::log2>};
  static constexpr Handler kBinary[] = {
      Binary<F, std::plus<F>{}>,    Binary<F, std::minus<F>{}>, Binary<F, std::multiplies<F>{}>,
      Binary<F, std::divides<F>{}>, Binary<F, FMin<F>>,         Binary<F, FMax<F>>,
      Binary<F, FCopysign<F>>};
  static constexpr Handler kCompare[] = {Compare<F, std::equal_to<>{}>,   Compare<F, std::not_equal_to<>{}>,
                                         Compare<F, std::less<>{}>,       Compare<F, std::greater<>{}>,
                                         Compare<F, std::less_equal<>{}>, Compare<F, std::greater_equal<>{}>};
  switch (Info(op.code).family) {
    case Family::kFloatUnary:
      return RowOf(kUnary, Opcode::kFAbs, op.code);
    case Family::kApprox:
      return RowOf(kApprox, Opcode::kApproxSin, op.code);
    case Family::kFloatBinary:
      return RowOf(kBinary, Opcode::kFAdd, op.code);
    default:
      return RowOf(kCompare, Opcode::kFEq, op.code);
  }
}

}  // namespace

Handler FloatHandler(const Op& op) { return op.type == Type::kF32 ? HandlerOf<float>(op) : HandlerOf<double>(op); }

}  // namespace hpvm::ir
