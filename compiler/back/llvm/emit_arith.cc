// SPDX-License-Identifier: Apache-2.0
// Arithmetic, as WebAssembly defines it: nothing here may have undefined behaviour in LLVM's eyes for any operand.
#include <cmath>

#include "llvm/IR/IntrinsicInst.h"

#include "compiler/back/llvm/emitter.h"

namespace hpvm::cpu {

using ir::Opcode;
using ir::TrapCode;
using llvm::Intrinsic::ID;

namespace {

// Whether `value`, a float, cannot be a signalling NaN. Every operation of WebAssembly's quiets NaNs but fabs, fneg and
// fcopysign, and LLVM thinks that none has to.
bool IsQuiet(const llvm::Value* value) {
  if (auto* constant = llvm::dyn_cast<llvm::ConstantFP>(value)) {
    return !constant->getValueAPF().isSignaling();
  }
  auto* instruction = llvm::dyn_cast<llvm::Instruction>(value);
  if (instruction == nullptr) {
    return false;
  }
  switch (instruction->getOpcode()) {
    case llvm::Instruction::FAdd:
    case llvm::Instruction::FSub:
    case llvm::Instruction::FMul:
    case llvm::Instruction::FDiv:
    case llvm::Instruction::FPExt:
    case llvm::Instruction::FPTrunc:
    case llvm::Instruction::SIToFP:
    case llvm::Instruction::UIToFP:
      return true;
    default:
      break;
  }
  auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(value);
  return call != nullptr &&
         (call->getIntrinsicID() == llvm::Intrinsic::canonicalize || call->getIntrinsicID() == llvm::Intrinsic::sqrt);
}

// `value`, quieted if it is a NaN.
llvm::Value* Quiet(llvm::IRBuilder<>& b, llvm::Value* value) {
  return IsQuiet(value) ? value : b.CreateUnaryIntrinsic(llvm::Intrinsic::canonicalize, value);
}

// Whether LLVM may replace the operation by its other operand, negated or not, when one is `constant`.
bool IsFoldedAway(Opcode code, const llvm::Value* constant) {
  auto* number = llvm::dyn_cast<llvm::ConstantFP>(constant);
  if (number == nullptr) {
    return false;
  }
  switch (code) {
    case Opcode::kFAdd:
    case Opcode::kFSub:
      return number->isZero();
    case Opcode::kFMul:
    case Opcode::kFDiv:
      return number->isExactlyValue(1.0) || number->isExactlyValue(-1.0);
    default:
      return false;
  }
}

}  // namespace

llvm::Value* FunctionEmitter::EmitIntUnary(const ir::Op& op, llvm::Value* a) {
  auto extend = [&](unsigned bits) { return b_.CreateSExt(b_.CreateTrunc(a, b_.getIntNTy(bits)), a->getType()); };
  switch (op.code) {
    case Opcode::kClz:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, a, b_.getFalse());
    case Opcode::kCtz:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, a, b_.getFalse());
    case Opcode::kPopcnt:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, a);
    case Opcode::kExtend8:
      return extend(8);
    case Opcode::kExtend16:
      return extend(16);
    case Opcode::kExtend32:
      return extend(32);
    default:
      return nullptr;
  }
}

llvm::Value* FunctionEmitter::EmitIntBinary(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  // Counts are taken modulo the width; LLVM's shifts by more than the width have no meaning.
  auto count = [&] { return b_.CreateAnd(b, llvm::ConstantInt::get(type, type->getIntegerBitWidth() - 1)); };
  switch (op.code) {
    case Opcode::kAdd:
      return b_.CreateAdd(a, b);
    case Opcode::kSub:
      return b_.CreateSub(a, b);
    case Opcode::kMul:
      return b_.CreateMul(a, b);
    case Opcode::kDivS:
    case Opcode::kDivU:
    case Opcode::kRemS:
    case Opcode::kRemU:
      return EmitDivision(op, a, b);
    case Opcode::kAnd:
      return b_.CreateAnd(a, b);
    case Opcode::kOr:
      return b_.CreateOr(a, b);
    case Opcode::kXor:
      return b_.CreateXor(a, b);
    case Opcode::kShl:
      return b_.CreateShl(a, count());
    case Opcode::kShrS:
      return b_.CreateAShr(a, count());
    case Opcode::kShrU:
      return b_.CreateLShr(a, count());
    case Opcode::kRotl:
      return b_.CreateIntrinsic(llvm::Intrinsic::fshl, {type}, {a, a, b});
    case Opcode::kRotr:
      return b_.CreateIntrinsic(llvm::Intrinsic::fshr, {type}, {a, a, b});
    default:
      return nullptr;
  }
}

llvm::Value* FunctionEmitter::EmitDivision(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  llvm::Value* minus_one = llvm::ConstantInt::getSigned(type, -1);
  TrapIf(b_.CreateICmpEQ(b, llvm::ConstantInt::get(type, 0)), TrapCode::kDivideByZero, op.source);
  switch (op.code) {
    case Opcode::kDivU:
      return b_.CreateUDiv(a, b);
    case Opcode::kRemU:
      return b_.CreateURem(a, b);
    case Opcode::kDivS: {
      llvm::Value* lowest =
          llvm::ConstantInt::get(m_.context(), llvm::APInt::getSignedMinValue(type->getIntegerBitWidth()));
      TrapIf(b_.CreateAnd(b_.CreateICmpEQ(a, lowest), b_.CreateICmpEQ(b, minus_one)), TrapCode::kIntegerOverflow,
             op.source);
      return b_.CreateSDiv(a, b);
    }
    default:
      // The lowest value modulo -1 is 0, but the machine's instruction faults on it; anything modulo 1 is 0 as well.
      return b_.CreateSRem(a, b_.CreateSelect(b_.CreateICmpEQ(b, minus_one), llvm::ConstantInt::get(type, 1), b));
  }
}

llvm::Value* FunctionEmitter::EmitIntCompare(const ir::Op& op) {
  using P = llvm::CmpInst::Predicate;
  llvm::Value* a = Operand(op, 0);
  llvm::Value* b = op.code == Opcode::kEqz ? llvm::ConstantInt::get(a->getType(), 0) : Operand(op, 1);
  P predicate = P::ICMP_EQ;
  switch (op.code) {
    case Opcode::kNe:
      predicate = P::ICMP_NE;
      break;
    case Opcode::kLtS:
      predicate = P::ICMP_SLT;
      break;
    case Opcode::kLtU:
      predicate = P::ICMP_ULT;
      break;
    case Opcode::kGtS:
      predicate = P::ICMP_SGT;
      break;
    case Opcode::kGtU:
      predicate = P::ICMP_UGT;
      break;
    case Opcode::kLeS:
      predicate = P::ICMP_SLE;
      break;
    case Opcode::kLeU:
      predicate = P::ICMP_ULE;
      break;
    case Opcode::kGeS:
      predicate = P::ICMP_SGE;
      break;
    case Opcode::kGeU:
      predicate = P::ICMP_UGE;
      break;
    default:  // kEqz, kEq.
      break;
  }
  return b_.CreateZExt(b_.CreateICmp(predicate, a, b), b_.getInt32Ty());
}

llvm::Value* FunctionEmitter::EmitFloatUnary(const ir::Op& op, llvm::Value* a) {
  auto call = [&](ID intrinsic) { return b_.CreateUnaryIntrinsic(intrinsic, a); };
  switch (op.code) {
    case Opcode::kFAbs:
      return call(llvm::Intrinsic::fabs);
    case Opcode::kFNeg:
      return b_.CreateFNeg(a);
    case Opcode::kFCeil:
      return call(llvm::Intrinsic::ceil);
    case Opcode::kFFloor:
      return call(llvm::Intrinsic::floor);
    case Opcode::kFTrunc:
      return call(llvm::Intrinsic::trunc);
    case Opcode::kFNearest:
      return call(llvm::Intrinsic::roundeven);
    case Opcode::kFSqrt:
      // The fence: LLVM drops a guard like "x < 0 ? NaN : sqrt(x)", though a constant's bits are not open.
      return b_.CreateArithmeticFence(call(llvm::Intrinsic::sqrt), a->getType());
    default:
      return nullptr;
  }
}

llvm::Value* FunctionEmitter::EmitFloatBinary(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  if (IsFoldedAway(op.code, b)) {
    a = Quiet(b_, a);
  } else if (IsFoldedAway(op.code, a)) {
    b = Quiet(b_, b);
  }
  switch (op.code) {
    case Opcode::kFAdd:
      return b_.CreateFAdd(a, b);
    case Opcode::kFSub:
      return b_.CreateFSub(a, b);
    case Opcode::kFMul:
      return b_.CreateFMul(a, b);
    case Opcode::kFDiv:
      return b_.CreateFDiv(a, b);
    case Opcode::kFMin:
    case Opcode::kFMax: {
      // The code for them gives a NaN operand as it is.
      llvm::Intrinsic::ID id = op.code == Opcode::kFMin ? llvm::Intrinsic::minimum : llvm::Intrinsic::maximum;
      llvm::Value* result = b_.CreateBinaryIntrinsic(id, a, b);
      return IsQuiet(a) && IsQuiet(b) ? result : b_.CreateUnaryIntrinsic(llvm::Intrinsic::canonicalize, result);
    }
    case Opcode::kFCopysign:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a, b);
    default:
      return nullptr;
  }
}

llvm::Value* FunctionEmitter::EmitFloatCompare(const ir::Op& op) {
  using P = llvm::CmpInst::Predicate;
  P predicate = P::FCMP_OEQ;
  switch (op.code) {
    case Opcode::kFNe:
      predicate = P::FCMP_UNE;  // True for NaN.
      break;
    case Opcode::kFLt:
      predicate = P::FCMP_OLT;
      break;
    case Opcode::kFGt:
      predicate = P::FCMP_OGT;
      break;
    case Opcode::kFLe:
      predicate = P::FCMP_OLE;
      break;
    case Opcode::kFGe:
      predicate = P::FCMP_OGE;
      break;
    default:
      break;
  }
  return b_.CreateZExt(b_.CreateFCmp(predicate, Operand(op, 0), Operand(op, 1)), b_.getInt32Ty());
}

llvm::Value* FunctionEmitter::EmitConvert(const ir::Op& op, llvm::Value* a) {
  llvm::Type* result = m_.TypeOf(f_.type_of(op.first_result));
  switch (op.code) {
    case Opcode::kWrap:
      return b_.CreateTrunc(a, result);
    case Opcode::kExtendS:
      return b_.CreateSExt(a, result);
    case Opcode::kExtendU:
      return b_.CreateZExt(a, result);
    case Opcode::kTruncS:
      return EmitTrunc(op, a, result, true);
    case Opcode::kTruncU:
      return EmitTrunc(op, a, result, false);
    case Opcode::kTruncSatS:
      return b_.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {result, a->getType()}, {a});
    case Opcode::kTruncSatU:
      return b_.CreateIntrinsic(llvm::Intrinsic::fptoui_sat, {result, a->getType()}, {a});
    case Opcode::kConvertS:
      return b_.CreateSIToFP(a, result);
    case Opcode::kConvertU:
      return b_.CreateUIToFP(a, result);
    case Opcode::kDemote:
      if (auto* extended = llvm::dyn_cast<llvm::FPExtInst>(a)) {
        return Quiet(b_, extended->getOperand(0));
      }
      return b_.CreateFPTrunc(a, result);
    case Opcode::kPromote:
      return b_.CreateFPExt(a, result);
    case Opcode::kReinterpret:
      return b_.CreateBitCast(a, result);
    default:
      return nullptr;
  }
}

// Traps unless the integral part fits. The bounds are exact in the operand's type: where lowest - 1 is not a float,
// lowest itself is, and nothing lies between that is not an integer.
llvm::Value* FunctionEmitter::EmitTrunc(const ir::Op& op, llvm::Value* a, llvm::Type* result, bool is_signed) {
  int bits = static_cast<int>(result->getIntegerBitWidth());
  double lowest = is_signed ? -std::ldexp(1.0, bits - 1) : 0.0;
  double end = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  bool is_below_exact = !is_signed || (op.type == ir::Type::kF64 && bits == 32);
  llvm::Value* above = is_below_exact ? b_.CreateFCmpOGT(a, llvm::ConstantFP::get(a->getType(), lowest - 1.0))
                                      : b_.CreateFCmpOGE(a, llvm::ConstantFP::get(a->getType(), lowest));
  llvm::Value* below = b_.CreateFCmpOLT(a, llvm::ConstantFP::get(a->getType(), end));
  llvm::BasicBlock* unfit = NewBlock("unfit");
  llvm::BasicBlock* fits = NewBlock("fits");
  b_.CreateCondBr(b_.CreateAnd(above, below), fits, unfit, Likely());
  b_.SetInsertPoint(unfit);
  llvm::Value* code = b_.CreateSelect(b_.CreateFCmpUNO(a, a), I32(static_cast<uint32_t>(TrapCode::kInvalidConversion)),
                                      I32(static_cast<uint32_t>(TrapCode::kIntegerOverflow)));
  TrapNow(code, op.source, nullptr, nullptr);
  b_.SetInsertPoint(fits);
  return is_signed ? b_.CreateFPToSI(a, result) : b_.CreateFPToUI(a, result);
}

}  // namespace hpvm::cpu
