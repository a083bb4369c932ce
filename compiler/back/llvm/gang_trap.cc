// SPDX-License-Identifier: Apache-2.0
// Traps of a tile. What says which lane trapped is worked out where a lane did, in blocks that are never laid out among
// those that run.
#include "compiler/back/llvm/gang.h"

namespace hpvm::cpu {

using ir::TrapCode;

void GangEmitter::TrapIf(unsigned row, unsigned column, llvm::Value* condition, llvm::Value* code, uint32_t source,
                         llvm::Value* address, llvm::Value* bytes) {
  llvm::Value* lanes = nullptr;
  llvm::Value* traps = condition;
  if (condition->getType()->isVectorTy()) {
    lanes = mask_.empty() ? condition : Both(PartMask(row, column), condition);
    traps = AnyOf(lanes);
  } else if (llvm::Value* active = RowIsActive(row); active != nullptr) {
    traps = Both(active, condition);
  }
  if (auto* constant = llvm::dyn_cast<llvm::Constant>(traps); constant != nullptr && constant->isNullValue()) {
    return;
  }
  llvm::BasicBlock* at = NewBlock("trap.at");
  llvm::BasicBlock* next = NewBlock("next");
  b_.CreateCondBr(traps, at, next, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(at);
  TrapNow(row, column, lanes, code, source, address, bytes);
  b_.SetInsertPoint(next);
}

void GangEmitter::TrapLaneIf(unsigned row, unsigned column, llvm::Value* lane, llvm::Value* condition,
                             llvm::Value* code, uint32_t source, llvm::Value* address, llvm::Value* bytes) {
  llvm::BasicBlock* at = NewBlock("trap.at");
  llvm::BasicBlock* next = NewBlock("next");
  b_.CreateCondBr(condition, at, next, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(at);
  RecordTrap({nullptr, written_in_, code, source, address, bytes, Where(row, column, lane)});
  b_.SetInsertPoint(next);
}

void GangEmitter::TrapIfStopped(uint32_t source) {
  TrapIf(kAllRows, 0, fields_.IsStopped(), I32(static_cast<uint32_t>(TrapCode::kStopped)), source);
}

// Ends the current block. `lanes`: those that trap, not none; null: all that are active.
void GangEmitter::TrapNow(unsigned row, unsigned column, llvm::Value* lanes, llvm::Value* code, uint32_t source,
                          llvm::Value* address, llvm::Value* bytes) {
  if (lanes == nullptr) {
    RecordTrap({nullptr, written_in_, code, source, address, bytes, FirstActive(row)});
    return;
  }
  llvm::Value* lane = FirstLane(lanes);
  auto at_lane = [&](llvm::Value* value) {
    return value != nullptr && value->getType()->isVectorTy() ? b_.CreateExtractElement(value, lane) : value;
  };
  RecordTrap({nullptr, written_in_, at_lane(code), source, at_lane(address), bytes, Where(row, column, lane)});
}

void GangEmitter::RecordTrap(TrapEdge edge) {
  if (ended_block_ == nullptr) {
    trap_block_ = NewBlock("trap");
    ended_block_ = NewBlock("ended");
  }
  edge.from = b_.GetInsertBlock();
  b_.CreateBr(edge.code != nullptr ? trap_block_ : ended_block_);
  trap_edges_.push_back(edge);
}

llvm::Value* GangEmitter::Where(unsigned row, unsigned column, llvm::Value* lane) {
  llvm::Value* number = b_.CreateAdd(lane, I32(column * lanes()));
  if (row != kAllRows) {
    return b_.CreateOr(number, I32(row << 16));
  }
  llvm::Value* where = number;  // Of row 0, unless only another row has that lane active.
  for (unsigned r = rows(); r-- > 0 && rows() > 1 && !mask_.empty();) {
    llvm::Value* is_active = b_.CreateExtractElement(PartMask(r, column), lane);
    where = b_.CreateSelect(is_active, b_.CreateOr(number, I32(r << 16)), where);
  }
  return where;
}

llvm::Value* GangEmitter::FirstActive(unsigned row) {
  llvm::Value* where = I32(row == kAllRows ? 0 : row << 16);
  for (size_t part = mask_.size(); part-- > 0;) {
    const auto r = static_cast<unsigned>(part / columns());
    const auto column = static_cast<unsigned>(part % columns());
    if (row == kAllRows || row == r) {
      where = b_.CreateSelect(AnyOf(mask_[part]), Where(r, column, FirstLane(mask_[part])), where);
    }
  }
  return where;
}

// Writes the record, and returns which instance it was.
void GangEmitter::EmitTrapBlock() {
  if (ended_block_ == nullptr) {
    return;
  }
  b_.SetInsertPoint(trap_block_);
  auto phi = [&](llvm::Type* type) { return b_.CreatePHI(type, static_cast<unsigned>(trap_edges_.size())); };
  llvm::PHINode* code = phi(b_.getInt32Ty());
  llvm::PHINode* function = phi(b_.getInt32Ty());
  llvm::PHINode* source = phi(b_.getInt32Ty());
  llvm::PHINode* address = phi(b_.getInt64Ty());
  llvm::PHINode* bytes = phi(b_.getInt64Ty());
  llvm::PHINode* where = phi(b_.getInt32Ty());
  b_.SetInsertPoint(ended_block_);
  llvm::PHINode* ended = phi(b_.getInt32Ty());
  bool has_records = false;
  for (const TrapEdge& edge : trap_edges_) {
    if (edge.code == nullptr) {
      ended->addIncoming(edge.where, edge.from);
      continue;
    }
    has_records = true;
    code->addIncoming(edge.code, edge.from);
    function->addIncoming(I32(edge.function), edge.from);
    source->addIncoming(I32(edge.source), edge.from);
    address->addIncoming(edge.address != nullptr ? edge.address : I64(0), edge.from);
    bytes->addIncoming(edge.bytes != nullptr ? edge.bytes : I64(0), edge.from);
    where->addIncoming(edge.where, edge.from);
  }
  b_.CreateRet(b_.CreateAdd(ended, I32(kGangTrapped)));
  if (!has_records) {
    trap_block_->eraseFromParent();
    return;
  }
  b_.SetInsertPoint(trap_block_);
  b_.CreateCall(m_.Helper("hpvm.record"), {function_->getArg(0), code, function, source, address, bytes});
  ended->addIncoming(where, trap_block_);
  b_.CreateBr(ended_block_);
}

}  // namespace hpvm::cpu
