// SPDX-License-Identifier: Apache-2.0
// Emits conditions that the plan assumes for a whole tile (GangPlan::is_assumed): one test for all its lanes. If the
// test fails, the tile has had no effect yet, and the caller runs it by a masked function.
#include "compiler/analysis/edge_forms.h"
#include "compiler/back/llvm/gang/gang.h"

namespace hpvm::cpu {

// Requires that all lanes of the tile take the same arm.
Status GangEmitter::EmitAssumedIf(const ir::Op& op, OpId id) {
  if (!masks_.IsWhole()) {
    return Unimplemented("A guard is used where lanes have diverged (function \"" + f_.name + "\").");
  }
  const Mask taken = masks_.Narrowed(tile_.OperandId(op, 0), true);
  llvm::Value* all = taken[0];
  for (size_t i = 1; i < taken.size(); ++i) {
    all = b_.CreateAnd(all, taken[i]);
  }
  Begin(op, id);
  llvm::BasicBlock* then_block = tile_.NewBlock("then");
  llvm::BasicBlock* some_block = tile_.NewBlock("not.all");
  llvm::BasicBlock* else_block = tile_.NewBlock("else");
  b_.CreateCondBr(masks_.AnyOf(b_.CreateNot(all)), some_block, then_block);
  b_.SetInsertPoint(some_block);
  b_.CreateCondBr(masks_.Any(taken), tile_.Mixed(), else_block);
  return EmitWays(op, id, then_block, else_block);
}

void GangEmitter::EmitAssumed(const ir::Op& op) {
  HPVMD_CHECK(masks_.IsWhole() && !tile_.kind.is_masked);
  const analysis::EdgeForm form = analysis::FindEdgeForm(f_, definitions_, op);
  switch (form.kind) {
    case analysis::EdgeForm::Kind::kNone:
      return EmitAssumedExtension(op);
    case analysis::EdgeForm::Kind::kChoice:
      return EmitAssumedChoice(op);
    case analysis::EdgeForm::Kind::kRemainder:
    case analysis::EdgeForm::Kind::kQuotient:
      return EmitAssumedDivision(op, form);
  }
}

void GangEmitter::GiveUpIf(llvm::Value* is_mixed) {
  llvm::BasicBlock* next = tile_.NewBlock("linear");
  b_.CreateCondBr(is_mixed, tile_.Mixed(), next, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(next);
}

// Returns the difference between the operand's last and first lane in a row.
int64_t GangEmitter::ReachOf(const ir::Op& op, uint32_t operand) const {
  const uint64_t step = tile_.LayoutOf(tile_.OperandId(op, operand)).step;
  const bool is_narrow = f_.type_of(tile_.OperandId(op, operand)) == ir::Type::kI32;
  return (is_narrow ? static_cast<int32_t>(static_cast<uint32_t>(step)) : static_cast<int64_t>(step)) *
         (tile_.columns() * tile_.lanes() - 1);
}

// An i32 is extended. If the tile's first and last lane in a row differ by the same amount before and after the
// extension, so do the lanes between them, because a tile's lanes do not span the whole range.
void GangEmitter::EmitAssumedExtension(const ir::Op& op) {
  ops_.EmitArith(op);
  const int64_t reach = ReachOf(op, 0);
  llvm::Value* is_mixed = b_.getFalse();
  for (unsigned row = 0; row < tile_.RowsOf(tile_.LayoutOf(op.first_result)); ++row) {
    llvm::Value* last =
        b_.CreateAdd(tile_.Operand(op, 0, row), tile_.I32(static_cast<uint32_t>(static_cast<int32_t>(reach))));
    llvm::Value* wide =
        op.code == Opcode::kExtendS ? b_.CreateSExt(last, b_.getInt64Ty()) : b_.CreateZExt(last, b_.getInt64Ty());
    llvm::Value* expected = b_.CreateAdd(tile_.Scalar(op.first_result, row), b_.getInt64(static_cast<uint64_t>(reach)));
    is_mixed = b_.CreateOr(is_mixed, b_.CreateICmpNE(wide, expected));
  }
  GiveUpIf(is_mixed);
}

// Requires that all lanes choose the operand that the plan considers the usual one.
void GangEmitter::EmitAssumedChoice(const ir::Op& op) {
  const uint32_t usual = analysis::UsualOperand(f_, definitions_, op, tile_.LayoutOf(tile_.OperandId(op, 1)).step,
                                                tile_.LayoutOf(tile_.OperandId(op, 2)).step);
  const Mask others = masks_.Narrowed(tile_.OperandId(op, 0), usual == 2);
  GiveUpIf(masks_.Any(others));
  tile_.Set(op.first_result, tile_.As(op.first_result, tile_.OperandId(op, usual)));
}

// Requires that no multiple of the divisor separates the first and last lane: the first lane's remainder plus the
// distance to the last lane is less than the divisor, so all lanes have one quotient.
void GangEmitter::EmitAssumedDivision(const ir::Op& op, const analysis::EdgeForm& form) {
  ops_.EmitArith(op);
  llvm::Type* const wide = b_.getInt64Ty();
  const bool is_narrow = op.type == ir::Type::kI32;
  const bool is_signed = op.code == Opcode::kRemS || op.code == Opcode::kDivS;
  const auto extended = [&](llvm::Value* value) {
    return is_signed ? b_.CreateSExt(value, wide) : b_.CreateZExt(value, wide);
  };
  llvm::Value* const reach = b_.getInt64(static_cast<uint64_t>(ReachOf(op, 0)));
  llvm::Value* is_mixed = b_.getFalse();
  for (unsigned row = 0; row < tile_.RowsOf(tile_.LayoutOf(op.first_result)); ++row) {
    llvm::Value* dividend = extended(tile_.Operand(op, 0, row));
    llvm::Value* divisor = form.divisor != 0 ? b_.getInt64(form.divisor) : extended(tile_.Operand(op, 1, row));
    llvm::Value* result = extended(tile_.Scalar(op.first_result, row));
    llvm::Value* rest = form.kind == analysis::EdgeForm::Kind::kRemainder ? result
                        : form.is_of_bits ? b_.CreateAnd(dividend, b_.CreateSub(divisor, b_.getInt64(1)))
                                          : b_.CreateSub(dividend, b_.CreateMul(result, divisor));
    is_mixed = b_.CreateOr(is_mixed, b_.CreateICmpUGE(b_.CreateAdd(rest, reach), divisor));
    if (!form.is_of_bits) {
      // Requires that neither lane is below 0 or beyond the type's range, and that the divisor is above 0.
      llvm::Value* last = b_.CreateAdd(dividend, reach);
      const uint64_t end = is_narrow ? uint64_t{1} << (is_signed ? 31 : 32) : uint64_t{1} << 63;
      is_mixed = b_.CreateOr(is_mixed, b_.CreateICmpUGE(dividend, b_.getInt64(end)));
      is_mixed = b_.CreateOr(is_mixed, b_.CreateICmpUGE(last, b_.getInt64(end)));
      is_mixed = b_.CreateOr(is_mixed, b_.CreateICmpSLE(divisor, b_.getInt64(0)));
    }
  }
  GiveUpIf(is_mixed);
}

}  // namespace hpvm::cpu
