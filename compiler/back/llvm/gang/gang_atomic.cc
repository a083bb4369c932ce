// SPDX-License-Identifier: Apache-2.0
// Atomics of lanes: one lane after the other, or one per row where all lanes access the same bytes and no old value is
// used.
#include <cstddef>

#include "compiler/back/llvm/gang/gang.h"
#include "compiler/back/llvm/gang/gang_memory.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

Status GangEmitter::EmitAtomic(const ir::Op& op, ir::OpId id) {
  return GangAccess(tile_, masks_, traps_, frame_, op, id).EmitAtomic();
}

// Returns true if an operation uses the value; passes leave the operands of removed operations behind, so this may be
// conservative.
bool GangFrame::IsUsed(ir::ValueId id) {
  if (is_used_.empty()) {
    is_used_.resize(tile_.f.values.size());
    for (ir::ValueId operand : tile_.f.operands) {
      is_used_[operand.index] = true;
    }
  }
  return is_used_[id.index];
}

namespace {

// The operation that combines the lanes before one of them accesses memory, and its neutral element.
struct Reduction {
  llvm::Intrinsic::ID across;
  llvm::Intrinsic::ID binary = llvm::Intrinsic::not_intrinsic;  // Else `operation`.
  llvm::Instruction::BinaryOps operation = llvm::Instruction::Add;
  enum class Neutral : uint8_t { kZero, kOnes, kSignedMost, kSignedLeast } neutral = Neutral::kZero;
};

std::optional<Reduction> ReductionOf(Opcode code) {
  using llvm::Instruction;
  namespace I = llvm::Intrinsic;
  using N = Reduction::Neutral;
  switch (code) {
    case Opcode::kAtomicAdd:
    case Opcode::kAtomicSub:
      return Reduction{I::vector_reduce_add};
    case Opcode::kAtomicOr:
      return Reduction{I::vector_reduce_or, I::not_intrinsic, Instruction::Or};
    case Opcode::kAtomicXor:
      return Reduction{I::vector_reduce_xor, I::not_intrinsic, Instruction::Xor};
    case Opcode::kAtomicAnd:
      return Reduction{I::vector_reduce_and, I::not_intrinsic, Instruction::And, N::kOnes};
    case Opcode::kAtomicMinU:
      return Reduction{I::vector_reduce_umin, I::umin, Instruction::Add, N::kOnes};
    case Opcode::kAtomicMaxU:
      return Reduction{I::vector_reduce_umax, I::umax};
    case Opcode::kAtomicMinS:
      return Reduction{I::vector_reduce_smin, I::smin, Instruction::Add, N::kSignedMost};
    case Opcode::kAtomicMaxS:
      return Reduction{I::vector_reduce_smax, I::smax, Instruction::Add, N::kSignedLeast};
    default:
      return std::nullopt;
  }
}

llvm::Constant* NeutralOf(const Reduction& reduction, llvm::Type* type) {
  const unsigned bits = type->getScalarSizeInBits();
  switch (reduction.neutral) {
    case Reduction::Neutral::kZero:
      return llvm::Constant::getNullValue(type);
    case Reduction::Neutral::kOnes:
      return llvm::Constant::getAllOnesValue(type);
    case Reduction::Neutral::kSignedMost:
      return llvm::ConstantInt::get(type, llvm::APInt::getSignedMaxValue(bits));
    case Reduction::Neutral::kSignedLeast:
      return llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(bits));
  }
  return nullptr;
}

}  // namespace

// Returns the pointer to the bytes at the operand, after all checks.
llvm::Value* GangAccess::AtomicPointer(llvm::Value* operand, Trap trap) {
  llvm::Type* i64 = b_.getInt64Ty();
  if (op_.width > 1) {
    // Every base is aligned, so the operand and the immediate determine the alignment.
    llvm::Value* low = b_.CreateAnd(b_.CreateAdd(place_.Wide(operand), I64(op_.imm)), I64(op_.width - 1u));
    trap(b_.CreateICmpNE(low, I64(0)), b_.getInt32(static_cast<uint32_t>(TrapCode::kMisalignedAtomic)),
         place_.FlatAddress(operand));
  }
  llvm::Value* offset = place_.OffsetOf(operand);
  auto inside = [&]() -> Row { return {place_.Added(place_.Pointer(offset, false), place_.imm)}; };
  if (place_.is_known) {
    return inside()[0];
  }
  llvm::Value* misses = b_.CreateICmpUGE(place_.Wide(offset), place_.ValidOf(0));
  return Split(misses, inside, [&]() -> Row {
    llvm::Value* address = place_.FlatAddress(operand);
    llvm::Value* out = b_.getInt32(static_cast<uint32_t>(TrapCode::kOutOfBounds));
    if (op_.space == Space::kParam && m_.source.has_separate_buffers) {
      llvm::Value* code = out;
      if (place_.is_store && place_.reach.has_value()) {
        llvm::Value* valid = b_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, place_.bytes, I64(*place_.reach));
        code = b_.CreateSelect(b_.CreateICmpULT(place_.Wide(offset), valid),
                               b_.getInt32(static_cast<uint32_t>(TrapCode::kReadOnlyBuffer)), out);
      }
      llvm::Value* count = frame_.OfContext(i64, offsetof(CpuContext, argument_count));
      trap(b_.CreateICmpEQ(count, I64(0)), code, address);
    }
    if (op_.space == Space::kParam && m_.source.stack_frame.has_value()) {
      trap(m_.IsOnStack(b_, op_, address), out, address);
    }
    llvm::Value* found = b_.CreateCall(m_.Helper(place_.is_store ? "hpvm.gang.resolve" : "hpvm.resolve.load"),
                                       {context(), address, I64(op_.width)});
    llvm::Value* code = b_.CreateExtractValue(found, 1);
    trap(b_.CreateICmpNE(code, b_.getInt32(0)), code, address);
    return {b_.CreateExtractValue(found, 0)};
  })[0];
}

// Runs the lanes in order; returns the old values, or null.
llvm::Value* GangAccess::AtomicColumn(unsigned row, unsigned column) {
  // Lanes are read from memory, because a register cannot be indexed by lane number.
  llvm::SmallVector<llvm::Value*, 4> arrays;
  for (uint32_t i = 0; i < op_.operand_count; ++i) {
    arrays.push_back(frame_.Scratch(GangFrame::kFirstAtomic + i));
    b_.CreateAlignedStore(tile_.Operand(op_, i, row, column), arrays.back(), llvm::Align(8));
  }
  const bool has_result = op_.result_count != 0 && frame_.IsUsed(op_.first_result);
  llvm::Type* result = m_.TypeOf(op_.type);
  auto element = [&](llvm::Type* type, llvm::Value* array, llvm::Value* lane) {
    return b_.CreateGEP(type, array, b_.CreateZExt(lane, b_.getInt64Ty()));
  };
  masks_.ForEachLane(masks_.PartMask(row, column), [&](llvm::Value* lane) {
    llvm::SmallVector<llvm::Value*, 3> operands;
    for (uint32_t i = 0; i < op_.operand_count; ++i) {
      llvm::Type* type = tile_.TypeOf(tile_.OperandId(op_, i));
      operands.push_back(b_.CreateLoad(type, element(type, arrays[i], lane)));
    }
    auto trap = [&](llvm::Value* condition, llvm::Value* code, llvm::Value* address) {
      traps_.TrapLaneIf(row, column, lane, condition, code, op_.source, address, I64(op_.width));
    };
    llvm::Value* pointer = AtomicPointer(operands[0], trap);
    llvm::Value* old_value = EmitAtomicAt(m_, b_, op_, pointer, llvm::ArrayRef(operands).drop_front());
    if (has_result) {
      b_.CreateStore(old_value, element(result, frame_.Scratch(GangFrame::kFirstAtomic + 3), lane));
    }
  });
  llvm::Type* type = tile_.VectorOf(result);
  return has_result ? static_cast<llvm::Value*>(
                          b_.CreateAlignedLoad(type, frame_.Scratch(GangFrame::kFirstAtomic + 3), llvm::Align(8)))
                    : llvm::PoisonValue::get(type);
}

// Performs one operation for all active lanes of a row.
void GangAccess::AtomicUniform(unsigned row, llvm::Value* value) {
  Guarded(masks_.RowIsActive(row), [&] {
    auto trap = [&](llvm::Value* condition, llvm::Value* code, llvm::Value* address) {
      traps_.TrapIf(row, 0, condition, code, op_.source, address, I64(op_.width));
    };
    EmitAtomicAt(m_, b_, op_, AtomicPointer(tile_.Operand(op_, 0, row), trap), {value});
  });
}

// Reduces the operands of a row's active lanes to one value.
llvm::Value* GangAccess::ReduceRow(unsigned row) {
  const Reduction reduction = *ReductionOf(op_.code);
  llvm::Value* all = nullptr;
  for (unsigned c = 0; c < columns_; ++c) {
    llvm::Value* value = Narrow(tile_.Operand(op_, 1, row, c));
    if (llvm::Value* mask = MaskOf(row, c); mask != nullptr) {
      value = b_.CreateSelect(mask, value, NeutralOf(reduction, value->getType()));
    }
    if (all == nullptr) {
      all = value;
    } else if (reduction.binary != llvm::Intrinsic::not_intrinsic) {
      all = b_.CreateBinaryIntrinsic(reduction.binary, all, value);
    } else {
      all = b_.CreateBinOp(reduction.operation, all, value);
    }
  }
  llvm::Value* one = b_.CreateUnaryIntrinsic(reduction.across, all);
  return stored_ == m_.TypeOf(op_.type) ? one : b_.CreateZExt(one, m_.TypeOf(op_.type));
}

Status GangAccess::EmitAtomic() {
  if (op_.space != Space::kParam && op_.space != Space::kGroup && op_.space != Space::kFlat) {
    return Unimplemented("Instances in lockstep have no atomics in space " + std::string(ir::Name(op_.space)) +
                         " (function \"" + tile_.f.name + "\").");
  }
  const bool is_reduced =
      form_ == Form::kUniform && ReductionOf(op_.code).has_value() && !frame_.IsUsed(op_.first_result);
  tile_.RemarkAccess(op_, is_reduced ? "The atomic operation is done once for all lanes."
                                     : "The atomic operation is done lane by lane.");
  place_.Audit();
  is_shared_ = false;
  Tiled results;
  for (unsigned row = 0; row < tile_.rows(); ++row) {
    if (is_reduced) {
      AtomicUniform(row, ReduceRow(row));
    }
    for (unsigned c = 0; c < columns_; ++c) {
      results.push_back(is_reduced ? llvm::PoisonValue::get(tile_.VectorOf(m_.TypeOf(op_.type)))  // Never read.
                                   : AtomicColumn(row, c));
    }
  }
  if (op_.result_count == 0) {
    return absl::OkStatus();
  }
  tile_.Set(op_.first_result, std::move(results));
  return absl::OkStatus();
}

}  // namespace hpvm::cpu
