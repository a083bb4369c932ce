// SPDX-License-Identifier: Apache-2.0
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
Handler UnaryHandler(Opcode code) {
  switch (code) {
    case Opcode::kFAbs:
      return Unary<F, FAbs<F>>;
    case Opcode::kFNeg:
      return Unary<F, FNeg<F>>;
    case Opcode::kFCeil:
      return Unary<F, FCeil<F>>;
    case Opcode::kFFloor:
      return Unary<F, FFloor<F>>;
    case Opcode::kFTrunc:
      return Unary<F, FTrunc<F>>;
    case Opcode::kFNearest:
      return Unary<F, FNearest<F>>;
    default:
      return Unary<F, FSqrt<F>>;
  }
}

template <typename F>
Handler BinaryHandler(Opcode code) {
  switch (code) {
    case Opcode::kFAdd:
      return Binary<F, std::plus<F>{}>;
    case Opcode::kFSub:
      return Binary<F, std::minus<F>{}>;
    case Opcode::kFMul:
      return Binary<F, std::multiplies<F>{}>;
    case Opcode::kFDiv:
      return Binary<F, std::divides<F>{}>;
    case Opcode::kFMin:
      return Binary<F, FMin<F>>;
    case Opcode::kFMax:
      return Binary<F, FMax<F>>;
    default:
      return Binary<F, FCopysign<F>>;
  }
}

template <typename F>
Handler CompareHandler(Opcode code) {
  switch (code) {
    case Opcode::kFEq:
      return Compare<F, std::equal_to<>{}>;
    case Opcode::kFNe:
      return Compare<F, std::not_equal_to<>{}>;
    case Opcode::kFLt:
      return Compare<F, std::less<>{}>;
    case Opcode::kFGt:
      return Compare<F, std::greater<>{}>;
    case Opcode::kFLe:
      return Compare<F, std::less_equal<>{}>;
    default:
      return Compare<F, std::greater_equal<>{}>;
  }
}

template <typename F>
Handler HandlerOf(const Op& op) {
  switch (Info(op.code).family) {
    case Family::kFloatUnary:
      return UnaryHandler<F>(op.code);
    case Family::kFloatBinary:
      return BinaryHandler<F>(op.code);
    default:
      return CompareHandler<F>(op.code);
  }
}

}  // namespace

Handler FloatHandler(const Op& op) { return op.type == Type::kF32 ? HandlerOf<float>(op) : HandlerOf<double>(op); }

}  // namespace hpvm::ir
