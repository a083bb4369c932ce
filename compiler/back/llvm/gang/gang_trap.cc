// SPDX-License-Identifier: Apache-2.0
// Traps of a tile. The code that finds the lane that trapped runs only after a trap, in cold blocks that are laid out
// apart from the hot ones.
#include "compiler/back/llvm/gang/gang_tile.h"

namespace hpvm::cpu {

void GangTraps::TrapIf(unsigned row, unsigned column, llvm::Value* condition, llvm::Value* code, uint32_t source,
                       llvm::Value* address, llvm::Value* bytes) {
  llvm::Value* lanes = nullptr;
  llvm::Value* traps = condition;
  if (condition->getType()->isVectorTy()) {
    lanes = masks_.IsWhole() ? condition : masks_.Both(masks_.PartMask(row, column), condition);
    traps = masks_.AnyOf(lanes);
  } else if (llvm::Value* active = masks_.RowIsActive(row); active != nullptr) {
    traps = masks_.Both(active, condition);
  }
  if (auto* constant = llvm::dyn_cast<llvm::Constant>(traps); constant != nullptr && constant->isNullValue()) {
    return;
  }
  llvm::BasicBlock* at = tile_.NewBlock("trap.at");
  llvm::BasicBlock* next = tile_.NewBlock("next");
  b_.CreateCondBr(traps, at, next, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(at);
  TrapNow(row, column, lanes, code, source, address, bytes);
  b_.SetInsertPoint(next);
}

void GangTraps::TrapLaneIf(unsigned row, unsigned column, llvm::Value* lane, llvm::Value* condition, llvm::Value* code,
                           uint32_t source, llvm::Value* address, llvm::Value* bytes) {
  llvm::BasicBlock* at = tile_.NewBlock("trap.at");
  llvm::BasicBlock* next = tile_.NewBlock("next");
  b_.CreateCondBr(condition, at, next, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(at);
  RecordTrap({nullptr, tile_.written_in, code, source, address, bytes, Where(row, column, lane)});
  b_.SetInsertPoint(next);
}

void GangTraps::TrapIfStopped(uint32_t source) {
  TrapIf(kAllRows, 0, tile_.fields.IsStopped(), tile_.I32(static_cast<uint32_t>(TrapCode::kStopped)), source);
}

// Ends the current block. `lanes`: the lanes that trap, at least one; null: all active lanes.
void GangTraps::TrapNow(unsigned row, unsigned column, llvm::Value* lanes, llvm::Value* code, uint32_t source,
                        llvm::Value* address, llvm::Value* bytes) {
  if (lanes == nullptr) {
    RecordTrap({nullptr, tile_.written_in, code, source, address, bytes, FirstActive(row)});
    return;
  }
  llvm::Value* lane = masks_.FirstLane(lanes);
  auto at_lane = [&](llvm::Value* value) {
    return value != nullptr && value->getType()->isVectorTy() ? b_.CreateExtractElement(value, lane) : value;
  };
  RecordTrap({nullptr, tile_.written_in, at_lane(code), source, at_lane(address), bytes, Where(row, column, lane)});
}

void GangTraps::RecordTrap(TrapEdge edge) {
  if (ended_block_ == nullptr) {
    trap_block_ = tile_.NewBlock("trap");
    ended_block_ = tile_.NewBlock("ended");
  }
  edge.from = b_.GetInsertBlock();
  b_.CreateBr(edge.code != nullptr ? trap_block_ : ended_block_);
  trap_edges_.push_back(edge);
}

llvm::Value* GangTraps::Where(unsigned row, unsigned column, llvm::Value* lane) {
  llvm::Value* number = b_.CreateAdd(lane, tile_.I32(column * tile_.lanes()));
  if (row != kAllRows) {
    return b_.CreateOr(number, tile_.I32(row << 16));
  }
  llvm::Value* where = number;  // In row 0, unless only another row has that lane active.
  for (unsigned r = tile_.rows(); r-- > 0 && tile_.rows() > 1 && !masks_.IsWhole();) {
    llvm::Value* is_active = b_.CreateExtractElement(masks_.PartMask(r, column), lane);
    where = b_.CreateSelect(is_active, b_.CreateOr(number, tile_.I32(r << 16)), where);
  }
  return where;
}

llvm::Value* GangTraps::FirstActive(unsigned row) {
  llvm::Value* where = tile_.I32(row == kAllRows ? 0 : row << 16);
  for (size_t part = masks_.mask().size(); part-- > 0;) {
    const auto r = static_cast<unsigned>(part / tile_.columns());
    const auto column = static_cast<unsigned>(part % tile_.columns());
    if (row == kAllRows || row == r) {
      where = b_.CreateSelect(masks_.AnyOf(masks_.mask()[part]),
                              Where(r, column, masks_.FirstLane(masks_.mask()[part])), where);
    }
  }
  return where;
}

// Writes the record, and returns the instance's number in the tile.
void GangTraps::EmitTrapBlock() {
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
    function->addIncoming(tile_.I32(edge.function), edge.from);
    source->addIncoming(tile_.I32(edge.source), edge.from);
    address->addIncoming(edge.address != nullptr ? edge.address : tile_.I64(0), edge.from);
    bytes->addIncoming(edge.bytes != nullptr ? edge.bytes : tile_.I64(0), edge.from);
    where->addIncoming(edge.where, edge.from);
  }
  b_.CreateRet(b_.CreateAdd(ended, tile_.I32(kGangTrapped)));
  if (!has_records) {
    trap_block_->eraseFromParent();
    return;
  }
  b_.SetInsertPoint(trap_block_);
  b_.CreateCall(m_.Helper("hpvm.record"), {tile_.function->getArg(0), code, function, source, address, bytes});
  ended->addIncoming(where, trap_block_);
  b_.CreateBr(ended_block_);
}

}  // namespace hpvm::cpu
