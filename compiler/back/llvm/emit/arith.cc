// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/emit/arith.h"

#include <cmath>

#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"

#include "base/status.h"

namespace hpvm::cpu {

using llvm::Intrinsic::ID;

namespace {

// Returns the constant that `value`, or each lane of it, is; null when there is none.
const llvm::ConstantFP* ConstantOf(const llvm::Value* value) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (constant != nullptr && constant->getType()->isVectorTy()) {
    constant = constant->getSplatValue();
  }
  return llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
}

// Returns true if `value`, a float, cannot be a signalling NaN. All WebAssembly operations quiet NaNs, except fabs,
// fneg and fcopysign; LLVM assumes that no operation has to.
bool IsQuiet(const llvm::Value* value) {
  if (const llvm::ConstantFP* constant = ConstantOf(value)) {
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
    case llvm::Instruction::ShuffleVector: {
      const llvm::Value* scalar = llvm::getSplatValue(value);
      return scalar != nullptr && IsQuiet(scalar);
    }
    default:
      break;
  }
  auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(value);
  if (call == nullptr) {
    return false;
  }
  switch (call->getIntrinsicID()) {
    case llvm::Intrinsic::canonicalize:
    case llvm::Intrinsic::sqrt:
    case llvm::Intrinsic::minimum:  // The emitter quiets their operands.
    case llvm::Intrinsic::maximum:
      return true;
    default:
      return false;
  }
}

// Returns `value` with NaNs quieted. LLVM 22 crashes on vectors of less than 128 bits, so they are done lane by lane.
llvm::Value* Canonicalize(llvm::IRBuilder<>& b, llvm::Value* value) {
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  if (type == nullptr || type->getPrimitiveSizeInBits() >= 128) {
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::canonicalize, value);
  }
  llvm::Value* result = llvm::PoisonValue::get(type);
  for (uint64_t lane = 0; lane < type->getNumElements(); ++lane) {
    llvm::Value* quiet = b.CreateUnaryIntrinsic(llvm::Intrinsic::canonicalize, b.CreateExtractElement(value, lane));
    result = b.CreateInsertElement(result, quiet, lane);
  }
  return result;
}

// Returns `value`, quieted if it may be a signalling NaN.
llvm::Value* Quiet(llvm::IRBuilder<>& b, llvm::Value* value) { return IsQuiet(value) ? value : Canonicalize(b, value); }

// Returns true if LLVM may replace the operation by its other operand, negated or not, when one is `constant`.
bool IsFoldedAway(Opcode code, const llvm::Value* constant) {
  const llvm::ConstantFP* number = ConstantOf(constant);
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

unsigned BitsOf(const llvm::Value* value) { return value->getType()->getScalarSizeInBits(); }

bool IsVector(const llvm::Value* value) { return value->getType()->isVectorTy(); }

llvm::ElementCount LanesOf(const llvm::Value* value) {
  return llvm::cast<llvm::VectorType>(value->getType())->getElementCount();
}

llvm::CmpInst::Predicate PredicateOf(Opcode code) {
  using P = llvm::CmpInst::Predicate;
  constexpr P kIntegers[] = {P::ICMP_EQ,  P::ICMP_EQ,  P::ICMP_NE,  P::ICMP_SLT, P::ICMP_ULT, P::ICMP_SGT,
                             P::ICMP_UGT, P::ICMP_SLE, P::ICMP_ULE, P::ICMP_SGE, P::ICMP_UGE};
  // A NaN is not equal to anything.
  constexpr P kFloats[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT, P::FCMP_OGT, P::FCMP_OLE, P::FCMP_OGE};
  return ir::Info(code).family == ir::Family::kIntCompare ? ir::RowOf(kIntegers, Opcode::kEqz, code)
                                                          : ir::RowOf(kFloats, Opcode::kFEq, code);
}

}  // namespace

llvm::Type* TypeOf(ir::Type type, llvm::LLVMContext& context) {
  switch (type) {
    case ir::Type::kI32:
      return llvm::Type::getInt32Ty(context);
    case ir::Type::kI64:
      return llvm::Type::getInt64Ty(context);
    case ir::Type::kF32:
      return llvm::Type::getFloatTy(context);
    case ir::Type::kF64:
      return llvm::Type::getDoubleTy(context);
  }
  return nullptr;
}

bool ArithEmitter::Handles(const ir::Op& op) {
  switch (ir::Info(op.code).family) {
    case ir::Family::kConst:
    case ir::Family::kIntUnary:
    case ir::Family::kIntBinary:
    case ir::Family::kIntCompare:
    case ir::Family::kFloatUnary:
    case ir::Family::kFloatBinary:
    case ir::Family::kFloatCompare:
    case ir::Family::kConvert:
    case ir::Family::kSelect:
      return true;
    default:
      return false;
  }
}

llvm::Value* ArithEmitter::Emit(const ir::Op& op, ir::Type result, std::span<llvm::Value* const> operands) {
  llvm::SmallVector<llvm::Value*, 3> values(operands.begin(), operands.end());
  for (llvm::Value* operand : operands) {
    if (!IsVector(operand)) {
      continue;
    }
    for (llvm::Value*& value : values) {
      if (!IsVector(value)) {
        value = b_.CreateVectorSplat(LanesOf(operand), value);
      }
    }
    break;
  }
  switch (ir::Info(op.code).family) {
    case ir::Family::kConst:
      return Constant(op);
    case ir::Family::kIntUnary:
      return IntUnary(op, values[0]);
    case ir::Family::kIntBinary:
      return IntBinary(op, values[0], values[1]);
    case ir::Family::kIntCompare:
      return IntCompare(op, values[0],
                        op.code == Opcode::kEqz ? llvm::Constant::getNullValue(values[0]->getType()) : values[1]);
    case ir::Family::kFloatUnary:
      return FloatUnary(op, values[0]);
    case ir::Family::kFloatBinary:
      return FloatBinary(op, values[0], values[1]);
    case ir::Family::kFloatCompare:
      return FloatCompare(op, values[0], values[1]);
    case ir::Family::kConvert:
      return Convert(op, result, values[0]);
    case ir::Family::kSelect:
      return b_.CreateSelect(b_.CreateICmpNE(values[0], llvm::Constant::getNullValue(values[0]->getType())), values[1],
                             values[2]);
    default:
      return nullptr;
  }
}

llvm::Type* ArithEmitter::TypeOf(ir::Type type, const llvm::Value* like) {
  llvm::Type* scalar = cpu::TypeOf(type, b_.getContext());
  return IsVector(like) ? llvm::VectorType::get(scalar, LanesOf(like)) : scalar;
}

llvm::BasicBlock* ArithEmitter::NewBlock(const char* name) {
  return llvm::BasicBlock::Create(b_.getContext(), name, b_.GetInsertBlock()->getParent());
}

llvm::Value* ArithEmitter::AnyActive(llvm::Value* condition) {
  // Inactive lanes may be poison, which a plain `and` would spread.
  if (llvm::Value* mask = ActiveMask()) {
    condition = b_.CreateSelect(mask, condition, llvm::Constant::getNullValue(condition->getType()));
  }
  return IsVector(condition) ? b_.CreateOrReduce(condition) : condition;
}

llvm::Value* ArithEmitter::Constant(const ir::Op& op) {
  switch (op.type) {
    case ir::Type::kI32:
      return b_.getInt32(static_cast<uint32_t>(op.imm));
    case ir::Type::kI64:
      return b_.getInt64(op.imm);
    case ir::Type::kF32:
      return llvm::ConstantFP::get(
          b_.getContext(), llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, static_cast<uint32_t>(op.imm))));
    case ir::Type::kF64:
      return llvm::ConstantFP::get(b_.getContext(),
                                   llvm::APFloat(llvm::APFloat::IEEEdouble(), llvm::APInt(64, op.imm)));
  }
  return nullptr;
}

llvm::Value* ArithEmitter::IntUnary(const ir::Op& op, llvm::Value* a) {
  auto extend = [&](unsigned bits) {
    llvm::Type* narrow = a->getType()->getWithNewBitWidth(bits);
    return b_.CreateSExt(b_.CreateTrunc(a, narrow), a->getType());
  };
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

llvm::Value* ArithEmitter::IntBinary(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  // Counts are taken modulo the width; LLVM's shifts by the width or more are undefined.
  auto count = [&] { return b_.CreateAnd(b, llvm::ConstantInt::get(type, BitsOf(a) - 1)); };
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
      return Divide(op, a, b);
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

llvm::Value* ArithEmitter::IntCompare(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  return b_.CreateZExt(b_.CreateICmp(PredicateOf(op.code), a, b), TypeOf(ir::Type::kI32, a));
}

llvm::Value* ArithEmitter::FloatUnary(const ir::Op& op, llvm::Value* a) {
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
      // The fence is needed because LLVM drops a guard like "x < 0 ? NaN : sqrt(x)", although the constant's bits
      // matter.
      return b_.CreateArithmeticFence(call(llvm::Intrinsic::sqrt), a->getType());
    default:
      return nullptr;
  }
}

llvm::Value* ArithEmitter::FloatBinary(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
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
      // The generated code returns a NaN operand unchanged. With AVX-512 LLVM 22 even loses a signalling NaN beside a
      // number (it looks only for quiet ones, VFPCLASS 3), so quieting the result would be too late.
      ID id = op.code == Opcode::kFMin ? llvm::Intrinsic::minimum : llvm::Intrinsic::maximum;
      return b_.CreateBinaryIntrinsic(id, Quiet(b_, a), Quiet(b_, b));
    }
    case Opcode::kFCopysign:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a, b);
    default:
      return nullptr;
  }
}

llvm::Value* ArithEmitter::FloatCompare(const ir::Op& op, llvm::Value* a, llvm::Value* b) {
  return b_.CreateZExt(b_.CreateFCmp(PredicateOf(op.code), a, b), TypeOf(ir::Type::kI32, a));
}

llvm::Value* ArithEmitter::Convert(const ir::Op& op, ir::Type to, llvm::Value* a) {
  llvm::Type* result = TypeOf(to, a);
  switch (op.code) {
    case Opcode::kWrap:
      return b_.CreateTrunc(a, result);
    case Opcode::kExtendS:
      return b_.CreateSExt(a, result);
    case Opcode::kExtendU:
      return b_.CreateZExt(a, result);
    case Opcode::kTruncS:
      return Truncate(op, result, a, true);
    case Opcode::kTruncU:
      return Truncate(op, result, a, false);
    case Opcode::kTruncSatS:
      return Saturate(result, a, true);
    case Opcode::kTruncSatU:
      return Saturate(result, a, false);
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
// lowest itself is, and no non-integer lies between them.
llvm::Value* ArithEmitter::Truncate(const ir::Op& op, llvm::Type* to, llvm::Value* a, bool is_signed) {
  const int bits = static_cast<int>(to->getScalarSizeInBits());
  const double lowest = is_signed ? -std::ldexp(1.0, bits - 1) : 0.0;
  const double end = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  const bool is_below_exact = !is_signed || (op.type == ir::Type::kF64 && bits == 32);
  llvm::Value* above = is_below_exact ? b_.CreateFCmpOGT(a, llvm::ConstantFP::get(a->getType(), lowest - 1.0))
                                      : b_.CreateFCmpOGE(a, llvm::ConstantFP::get(a->getType(), lowest));
  llvm::Value* below = b_.CreateFCmpOLT(a, llvm::ConstantFP::get(a->getType(), end));
  llvm::Value* unfit = b_.CreateNot(b_.CreateAnd(above, below));
  // Only the trapping path determines which trap it is.
  llvm::BasicBlock* unfit_block = NewBlock("unfit");
  llvm::BasicBlock* fits_block = NewBlock("fits");
  b_.CreateCondBr(AnyActive(unfit), unfit_block, fits_block,
                  llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(unfit_block);
  llvm::Type* i32 = TypeOf(ir::Type::kI32, a);
  auto code_of = [&](TrapCode code) { return llvm::ConstantInt::get(i32, static_cast<uint32_t>(code)); };
  llvm::Value* code = b_.CreateSelect(b_.CreateFCmpUNO(a, a), code_of(TrapCode::kInvalidConversion),
                                      code_of(TrapCode::kIntegerOverflow));
  TrapIf(IsVector(a) ? unfit : b_.getTrue(), code, op);
  b_.CreateBr(fits_block);
  b_.SetInsertPoint(fits_block);
  return is_signed ? b_.CreateFPToSI(a, to) : b_.CreateFPToUI(a, to);
}

// LLVM splits the intrinsic on vectors into lanes. Converting a value that does not fit is undefined in LLVM, so 0 is
// converted instead, which is also the result for a NaN.
llvm::Value* ArithEmitter::Saturate(llvm::Type* to, llvm::Value* a, bool is_signed) {
  if (!IsVector(a)) {
    return b_.CreateIntrinsic(is_signed ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat, {to, a->getType()},
                              {a});
  }
  const unsigned bits = to->getScalarSizeInBits();
  llvm::Type* from = a->getType();
  const double end_number = std::ldexp(1.0, static_cast<int>(is_signed ? bits - 1 : bits));
  llvm::Constant* end = llvm::ConstantFP::get(from, end_number);
  llvm::Constant* zero = llvm::Constant::getNullValue(from);
  llvm::Constant* begin = is_signed ? llvm::ConstantFP::get(from, -end_number) : zero;
  llvm::Value* fits = b_.CreateAnd(b_.CreateFCmpOGE(a, begin), b_.CreateFCmpOLT(a, end));
  llvm::Value* number = b_.CreateSelect(fits, a, zero);
  llvm::Value* result = is_signed ? b_.CreateFPToSI(number, to) : b_.CreateFPToUI(number, to);
  if (is_signed) {
    llvm::Constant* lowest = llvm::ConstantInt::get(to, llvm::APInt::getSignedMinValue(bits));
    result = b_.CreateSelect(b_.CreateFCmpOLT(a, begin), lowest, result);
  }
  llvm::Constant* highest =
      llvm::ConstantInt::get(to, is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
  return b_.CreateSelect(b_.CreateFCmpOGE(a, end), highest, result);
}

}  // namespace hpvm::cpu
