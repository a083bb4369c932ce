// SPDX-License-Identifier: Apache-2.0
// Integer division and remainder. Processors divide only vectors of floats, and LLVM splits integer vectors into
// lanes.
//
// The quotient of floats is accurate enough. For |a| < 2^53 and integer b, a quotient a / b that is not an integer
// differs from the nearest integer by at least 1 / |b|; rounding moves it by at most |a / b| * 2^-53, which is less.
// It never reaches that integer, so truncation gives the right result.
#include "llvm/IR/MDBuilder.h"

#include "compiler/back/llvm/emit/arith.h"

namespace hpvm::cpu {

namespace {

bool IsSigned(const ir::Op& op) { return op.code == Opcode::kDivS || op.code == Opcode::kRemS; }
bool IsRemainder(const ir::Op& op) { return op.code == Opcode::kRemS || op.code == Opcode::kRemU; }

llvm::Constant* Lowest(llvm::Type* type) {
  return llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(type->getScalarSizeInBits()));
}

llvm::Value* Plain(llvm::IRBuilder<>& b, const ir::Op& op, llvm::Value* a, llvm::Value* divisor) {
  switch (op.code) {
    case Opcode::kDivU:
      return b.CreateUDiv(a, divisor);
    case Opcode::kRemU:
      return b.CreateURem(a, divisor);
    case Opcode::kDivS:
      return b.CreateSDiv(a, divisor);
    default:
      return b.CreateSRem(a, divisor);
  }
}

// Returns the constant by which all lanes are divided, or null.
const llvm::ConstantInt* ConstantDivisor(const llvm::Value* divisor) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(divisor);
  return constant == nullptr ? nullptr : llvm::dyn_cast_or_null<llvm::ConstantInt>(constant->getSplatValue());
}

// Converts integers of magnitude below 2^51 to floats and back through 1.5 * 2^52, whose last bit is worth 1: some
// processors with vectors of 64-bit integers have no such conversion.
constexpr double kShift = 6755399441055744.0;
constexpr uint64_t kShiftBits = 0x4338000000000000;
constexpr unsigned kShiftedBits = 51;

llvm::Value* ToDouble(llvm::IRBuilder<>& b, llvm::Value* integer, llvm::Type* to) {
  llvm::Value* shifted = b.CreateAdd(integer, llvm::ConstantInt::get(integer->getType(), kShiftBits));
  return b.CreateFSub(b.CreateBitCast(shifted, to), llvm::ConstantFP::get(to, kShift));
}

llvm::Value* FromDouble(llvm::IRBuilder<>& b, llvm::Value* number, llvm::Type* to) {
  llvm::Value* whole = b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, number);
  llvm::Value* shifted = b.CreateFAdd(whole, llvm::ConstantFP::get(number->getType(), kShift));
  return b.CreateSub(b.CreateBitCast(shifted, to), llvm::ConstantInt::get(to, kShiftBits));
}

}  // namespace

llvm::Value* ArithEmitter::Divide(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  TrapDivision(op, a, b);
  if (b->getType()->isVectorTy()) {
    return DivideVectors(op, a, b);
  }
  if (llvm::Value* mask = ActiveMask()) {
    a = b_.CreateSelect(mask, a, llvm::Constant::getNullValue(a->getType()));
    b = b_.CreateSelect(mask, b, llvm::ConstantInt::get(b->getType(), 1));
  }
  if (op.code == Opcode::kRemS) {
    // The lowest value modulo -1 is 0, but the machine's instruction faults on it; any value modulo 1 is 0 as well.
    llvm::Value* is_minus_one = b_.CreateICmpEQ(b, llvm::ConstantInt::getSigned(b->getType(), -1));
    b = b_.CreateSelect(is_minus_one, llvm::ConstantInt::get(b->getType(), 1), b);
  }
  return Plain(b_, op, a, b);
}

void ArithEmitter::TrapDivision(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = b->getType();
  llvm::Value* zero = b_.CreateICmpEQ(b, llvm::Constant::getNullValue(type));
  llvm::Value* overflow = llvm::Constant::getNullValue(zero->getType());
  if (op.code == Opcode::kDivS) {
    overflow =
        b_.CreateAnd(b_.CreateICmpEQ(a, Lowest(type)), b_.CreateICmpEQ(b, llvm::ConstantInt::getSigned(type, -1)));
  }
  auto is_never = [](llvm::Value* condition) {
    auto* constant = llvm::dyn_cast<llvm::Constant>(condition);
    return constant != nullptr && constant->isNullValue();
  };
  auto trap = [&](llvm::Value* condition, TrapCode code) {
    if (!is_never(condition)) {
      TrapIf(condition, b_.getInt32(static_cast<uint32_t>(code)), op);
    }
  };
  llvm::Value* either = is_never(zero) ? overflow : b_.CreateOr(zero, overflow);
  if (is_never(either)) {
    return;
  }
  if (!type->isVectorTy()) {
    trap(zero, TrapCode::kDivideByZero);
    trap(overflow, TrapCode::kIntegerOverflow);
    return;
  }
  llvm::BasicBlock* unfit = NewBlock("unfit");
  llvm::BasicBlock* fits = NewBlock("fits");
  b_.CreateCondBr(AnyActive(either), unfit, fits, llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(unfit);
  trap(zero, TrapCode::kDivideByZero);
  trap(overflow, TrapCode::kIntegerOverflow);
  b_.CreateBr(fits);
  b_.SetInsertPoint(fits);
}

llvm::Value* ArithEmitter::DivideVectors(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  const unsigned bits = type->getScalarSizeInBits();
  llvm::Constant* one = llvm::ConstantInt::get(type, 1);
  if (const llvm::ConstantInt* divisor = ConstantDivisor(b)) {
    if (IsSigned(op) && divisor->isMinusOne()) {
      return IsRemainder(op) ? llvm::Constant::getNullValue(type) : b_.CreateNeg(a);
    }
    // LLVM multiplies by reciprocals, but of 64-bit integers only one lane at a time.
    if (!divisor->isZero() && (bits == 32 || divisor->getValue().isPowerOf2())) {
      return Plain(b_, op, a, b);
    }
  }
  if (llvm::Value* mask = ActiveMask()) {
    a = b_.CreateSelect(mask, a, llvm::Constant::getNullValue(type));
    b = b_.CreateSelect(mask, b, one);
  }
  if (op.code == Opcode::kRemS) {
    b = b_.CreateSelect(b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(type)), one, b);
  }
  // Reciprocals, which fast arithmetic allows, would be inexact.
  llvm::IRBuilderBase::FastMathFlagGuard exact(b_);
  b_.clearFastMathFlags();
  return bits == 32 ? DivideNarrow(op, a, b) : DivideWide(op, a, b);
}

llvm::Value* ArithEmitter::DivideNarrow(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  llvm::Type* numbers = TypeOf(ir::Type::kF64, a);
  auto widen = [&](llvm::Value* value) {
    return IsSigned(op) ? b_.CreateSIToFP(value, numbers) : b_.CreateUIToFP(value, numbers);
  };
  llvm::Value* ratio = b_.CreateFDiv(widen(a), widen(b));
  llvm::Value* quotient = IsSigned(op) ? b_.CreateFPToSI(ratio, a->getType()) : b_.CreateFPToUI(ratio, a->getType());
  return IsRemainder(op) ? b_.CreateSub(a, b_.CreateMul(quotient, b)) : quotient;
}

// 64-bit integers are nearly always small: then the float quotient serves; otherwise lanes are divided one by one.
llvm::Value* ArithEmitter::DivideWide(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  auto biased = [&](llvm::Value* value) {
    return IsSigned(op) ? b_.CreateAdd(value, llvm::ConstantInt::get(type, uint64_t{1} << kShiftedBits)) : value;
  };
  const unsigned bits = kShiftedBits + (IsSigned(op) ? 1 : 0);
  llvm::Value* high = b_.CreateLShr(b_.CreateOr(biased(a), biased(b)), llvm::ConstantInt::get(type, bits));
  llvm::Value* is_large = b_.CreateOrReduce(b_.CreateICmpNE(high, llvm::Constant::getNullValue(type)));
  llvm::BasicBlock* small = NewBlock("small");
  llvm::BasicBlock* large = NewBlock("large");
  llvm::BasicBlock* divided = NewBlock("divided");
  b_.CreateCondBr(is_large, large, small, llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(small);
  llvm::Type* numbers = TypeOf(ir::Type::kF64, a);
  llvm::Value* ratio = b_.CreateFDiv(ToDouble(b_, a, numbers), ToDouble(b_, b, numbers));
  llvm::Value* quick = FromDouble(b_, ratio, type);
  quick = IsRemainder(op) ? b_.CreateSub(a, b_.CreateMul(quick, b)) : quick;
  b_.CreateBr(divided);
  b_.SetInsertPoint(large);
  llvm::Value* slow = DivideByLane(op, a, b);
  llvm::BasicBlock* slow_end = b_.GetInsertBlock();
  b_.CreateBr(divided);
  b_.SetInsertPoint(divided);
  llvm::PHINode* result = b_.CreatePHI(type, 2);
  result->addIncoming(quick, small);
  result->addIncoming(slow, slow_end);
  return result;
}

// Emits a loop, because code for each lane would be large. No lane has a divisor that faults.
llvm::Value* ArithEmitter::DivideByLane(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  auto* type = llvm::cast<llvm::FixedVectorType>(a->getType());
  llvm::BasicBlock& first = b_.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> entry(&first, first.getFirstInsertionPt());
  llvm::Value* dividends = entry.CreateAlloca(type);
  llvm::Value* divisors = entry.CreateAlloca(type);
  b_.CreateStore(a, dividends);
  b_.CreateStore(b, divisors);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* loop = NewBlock("lane");
  llvm::BasicBlock* done = NewBlock("lanes");
  b_.CreateBr(loop);
  b_.SetInsertPoint(loop);
  llvm::PHINode* lane = b_.CreatePHI(b_.getInt64Ty(), 2);
  lane->addIncoming(b_.getInt64(0), before);
  llvm::Type* scalar = type->getElementType();
  llvm::Value* dividend = b_.CreateInBoundsGEP(scalar, dividends, lane);
  llvm::Value* divisor = b_.CreateInBoundsGEP(scalar, divisors, lane);
  b_.CreateStore(Plain(b_, op, b_.CreateLoad(scalar, dividend), b_.CreateLoad(scalar, divisor)), dividend);
  llvm::Value* next = b_.CreateAdd(lane, b_.getInt64(1));
  lane->addIncoming(next, loop);
  b_.CreateCondBr(b_.CreateICmpULT(next, b_.getInt64(type->getNumElements())), loop, done);
  b_.SetInsertPoint(done);
  return b_.CreateLoad(type, dividends);
}

}  // namespace hpvm::cpu
