// SPDX-License-Identifier: Apache-2.0
// The entry of a variant that runs tiles: a CpuEntry over units of tiles (compiler/ir/cpu_abi.h).
//
// A tile inside the extent is one call of the function for whole tiles. Partial tiles at the edges, and a tile whose
// instances differ in an assumed condition, run row by row and gang by gang under a mask.
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/back/llvm/gang/gang.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {
namespace {

class TileEntryEmitter {
 public:
  TileEntryEmitter(ModuleEmitter& m, const TileEntry& tiles)
      : m_(m),
        tiles_(tiles),
        function_(DeclareEntry(m, tiles.name)),
        b_(m.context()),
        fields_(m, b_, function_->getArg(0), nullptr),
        step_{tiles.shape.width(), tiles.shape.rows},
        inner_(tiles.shape.rows > 1 ? 1 : 0),
        axis_{tiles.is_along_y ? 1u : 0u, tiles.is_along_y ? 0u : 1u} {}
  void Emit() {
    llvm::BasicBlock* start = NewBlock("start");
    loop_ = NewBlock("tile");
    gangs_ = NewBlock("gangs");
    next_ = NewBlock("next");
    stopped_ = NewBlock("stopped");
    failed_ = NewBlock("failed");
    done_ = NewBlock("done");
    b_.SetInsertPoint(start);
    EmitStart();
    EmitTile();
    EmitNext();
    EmitEnds();
  }

 private:
  llvm::Value* I64(uint64_t value) { return b_.getInt64(value); }
  llvm::BasicBlock* NewBlock(const char* name) { return llvm::BasicBlock::Create(m_.context(), name, function_); }
  llvm::MDNode* Unlikely() { return llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights(); }
  void EmitStart() {
    llvm::BasicBlock* some = NewBlock("some");
    b_.CreateCondBr(b_.CreateICmpULT(function_->getArg(1), function_->getArg(2)), some, done_);
    b_.SetInsertPoint(some);
    arguments_ = fields_.LoadArguments();
    params_ = LoadParams(m_, b_, fields_);
    llvm::Value* rest = function_->getArg(1);
    for (unsigned d = 0; d < 2; ++d) {
      llvm::Value* extent = fields_.LoadInvariant(b_.getInt64Ty(), offsetof(CpuContext, extent) + 8 * axis_[d]);
      // A launch with instances has no empty axis; the maximum keeps the division from faulting whatever the context
      // contains.
      extent_[d] = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, extent, I64(1));
    }
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned d = i == 0 ? inner_ : 1 - inner_;
      llvm::Value* last = b_.CreateUDiv(b_.CreateSub(extent_[d], I64(1)), I64(step_[d]));
      llvm::Value* tiles = b_.CreateAdd(last, I64(1));
      start_[d] = b_.CreateMul(b_.CreateURem(rest, tiles), I64(step_[d]));
      rest = b_.CreateUDiv(rest, tiles);
    }
    start_[2] = rest;
    start_end_ = b_.GetInsertBlock();
    b_.CreateBr(loop_);
  }
  void EmitTile() {
    b_.SetInsertPoint(loop_);
    linear_ = b_.CreatePHI(b_.getInt64Ty(), 2);
    linear_->addIncoming(function_->getArg(1), start_end_);
    for (unsigned d = 0; d < 3; ++d) {
      place_[d] = b_.CreatePHI(b_.getInt64Ty(), 2);
      place_[d]->addIncoming(start_[d], start_end_);
    }
    llvm::BasicBlock* run = NewBlock("run");
    b_.CreateCondBr(fields_.IsStopped(), stopped_, run, Unlikely());
    b_.SetInsertPoint(run);
    for (unsigned d = 0; d < 2; ++d) {
      left_[d] = b_.CreateSub(extent_[d], place_[d]);
    }
    if (tiles_.whole != nullptr) {
      EmitWhole();
    } else {
      b_.CreateBr(gangs_);
    }
    b_.SetInsertPoint(gangs_);
    EmitGangs();
  }
  void EmitWhole() {
    llvm::BasicBlock* whole = NewBlock("whole");
    llvm::Value* is_whole =
        b_.CreateAnd(b_.CreateICmpUGE(left_[0], I64(step_[0])), b_.CreateICmpUGE(left_[1], I64(step_[1])));
    b_.CreateCondBr(is_whole, whole, gangs_, llvm::MDBuilder(m_.context()).createLikelyBranchWeights());
    b_.SetInsertPoint(whole);
    llvm::Value* status = Call(tiles_.whole, place_[0], place_[1], I64(step_[0]));
    llvm::BasicBlock* other = NewBlock("other");
    llvm::BasicBlock* trapped = NewBlock("trapped");
    b_.CreateCondBr(b_.CreateICmpEQ(status, b_.getInt32(kGangDone)), next_, other,
                    llvm::MDBuilder(m_.context()).createLikelyBranchWeights());
    b_.SetInsertPoint(other);
    b_.CreateCondBr(b_.CreateICmpEQ(status, b_.getInt32(kGangMixed)), gangs_, trapped);
    b_.SetInsertPoint(trapped);
    Fail(nullptr, status, place_[0], place_[1], nullptr);
  }
  void EmitGangs() {
    llvm::Value* rows = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, left_[1], I64(step_[1]));
    llvm::Value* width = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, left_[0], I64(step_[0]));
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::BasicBlock* row_block = NewBlock("row");
    llvm::BasicBlock* gang_block = NewBlock("gang");
    llvm::BasicBlock* ran = NewBlock("ran");
    llvm::BasicBlock* row_end = NewBlock("row_end");
    b_.CreateBr(row_block);
    b_.SetInsertPoint(row_block);
    llvm::PHINode* row = b_.CreatePHI(b_.getInt64Ty(), 2);
    row->addIncoming(I64(0), before);
    llvm::Value* y = b_.CreateAdd(place_[1], row);
    b_.CreateBr(gang_block);
    b_.SetInsertPoint(gang_block);
    llvm::PHINode* column = b_.CreatePHI(b_.getInt64Ty(), 2);
    column->addIncoming(I64(0), row_block);
    llvm::Value* x = b_.CreateAdd(place_[0], column);
    llvm::Value* count =
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateSub(width, column), I64(tiles_.shape.lanes));
    llvm::Value* status = Call(tiles_.masked, x, y, count);
    Fail(b_.CreateICmpNE(status, b_.getInt32(kGangDone)), status, x, y, ran);
    llvm::Value* next_column = b_.CreateAdd(column, I64(tiles_.shape.lanes));
    column->addIncoming(next_column, ran);
    b_.CreateCondBr(b_.CreateICmpULT(next_column, width), gang_block, row_end);
    b_.SetInsertPoint(row_end);
    llvm::Value* next_row = b_.CreateAdd(row, I64(1));
    row->addIncoming(next_row, row_end);
    b_.CreateCondBr(b_.CreateICmpULT(next_row, rows), row_block, next_);
  }
  void EmitNext() {
    b_.SetInsertPoint(next_);
    llvm::Value* next = b_.CreateAdd(linear_, I64(1));
    linear_->addIncoming(next, next_);
    llvm::Value* ends = nullptr;  // True if the axes so far wrap around.
    for (unsigned d : {inner_, 1 - inner_, 2u}) {
      llvm::Value* moved = b_.CreateAdd(place_[d], I64(d == 2 ? 1 : step_[d]));
      llvm::Value* at_edge = d == 2 ? b_.getFalse() : b_.CreateICmpULE(left_[d], I64(step_[d]));
      llvm::Value* place = b_.CreateSelect(at_edge, I64(0), moved);
      place_[d]->addIncoming(ends == nullptr ? place : b_.CreateSelect(ends, place, place_[d]), next_);
      ends = ends == nullptr ? at_edge : b_.CreateAnd(ends, at_edge);
    }
    b_.CreateCondBr(b_.CreateICmpULT(next, function_->getArg(2)), loop_, done_);
  }
  void EmitEnds() {
    b_.SetInsertPoint(done_);
    b_.CreateRet(b_.getInt32(CpuOutcome::kCpuDone));
    b_.SetInsertPoint(stopped_);
    b_.CreateCall(m_.Helper("hpvm.record"),
                  {function_->getArg(0), b_.getInt32(static_cast<uint32_t>(TrapCode::kStopped)),
                   b_.getInt32(m_.source.entry.index), b_.getInt32(0), I64(0), I64(0)});
    Fail(nullptr, b_.getInt32(kGangTrapped), place_[0], place_[1], nullptr);
    b_.SetInsertPoint(failed_);
    const auto count = static_cast<unsigned>(failures_.size());
    llvm::PHINode* where = b_.CreatePHI(b_.getInt32Ty(), count);
    llvm::PHINode* x = b_.CreatePHI(b_.getInt64Ty(), count);
    llvm::PHINode* y = b_.CreatePHI(b_.getInt64Ty(), count);
    for (const Failure& failure : failures_) {
      where->addIncoming(failure.where, failure.from);
      x->addIncoming(failure.x, failure.from);
      y->addIncoming(failure.y, failure.from);
    }
    llvm::Value* wide = b_.CreateZExt(where, b_.getInt64Ty());
    fields_.Store(b_.CreateAdd(x, b_.CreateAnd(wide, I64(0xffff))), offsetof(CpuContext, trap_instance) + 8 * axis_[0]);
    fields_.Store(b_.CreateAdd(y, b_.CreateLShr(wide, I64(16))), offsetof(CpuContext, trap_instance) + 8 * axis_[1]);
    fields_.Store(place_[2], offsetof(CpuContext, trap_instance) + 16);
    b_.CreateRet(b_.getInt32(CpuOutcome::kCpuTrapped));
  }
  llvm::Value* Call(llvm::Function* gang, llvm::Value* x, llvm::Value* y, llvm::Value* count) {
    llvm::SmallVector<llvm::Value*, 14> arguments = {function_->getArg(0), arguments_, x, y, place_[2], count};
    arguments.append(params_.begin(), params_.end());
    llvm::CallInst* status = b_.CreateCall(gang, arguments);
    status->setCallingConv(llvm::CallingConv::Fast);
    return status;
  }
  // Ends the entry with the status that a gang starting at (x, y) returned.
  void Fail(llvm::Value* failed, llvm::Value* status, llvm::Value* x, llvm::Value* y, llvm::BasicBlock* next) {
    llvm::Value* where = b_.CreateSub(status, b_.getInt32(kGangTrapped));
    failures_.push_back({b_.GetInsertBlock(), where, x, y});
    if (failed == nullptr) {
      b_.CreateBr(failed_);
      return;
    }
    b_.CreateCondBr(failed, failed_, next, Unlikely());
    b_.SetInsertPoint(next);
  }

  ModuleEmitter& m_;
  const TileEntry& tiles_;
  llvm::Function* function_;
  llvm::IRBuilder<> b_;
  ContextFields fields_;
  const uint64_t step_[2];
  const unsigned inner_;    // The axis along which tiles are counted first.
  const unsigned axis_[2];  // Maps the functions' axis to the launch's axis.
  llvm::Value* arguments_ = nullptr;
  llvm::SmallVector<llvm::Value*, 8> params_;
  llvm::Value* extent_[2] = {};
  llvm::Value* start_[3] = {};
  llvm::PHINode* linear_ = nullptr;
  llvm::PHINode* place_[3] = {};  // The tile's first instance.
  llvm::Value* left_[2] = {};     // Instances from there to the edge.
  llvm::BasicBlock* start_end_ = nullptr;
  llvm::BasicBlock* loop_ = nullptr;
  llvm::BasicBlock* gangs_ = nullptr;
  llvm::BasicBlock* next_ = nullptr;
  llvm::BasicBlock* stopped_ = nullptr;
  llvm::BasicBlock* done_ = nullptr;
  llvm::BasicBlock* failed_ = nullptr;
  struct Failure {
    llvm::BasicBlock* from;
    llvm::Value* where;  // Encoded as in a gang's status.
    llvm::Value* x;
    llvm::Value* y;
  };
  llvm::SmallVector<Failure, 3> failures_;
};

}  // namespace

void EmitTileEntry(ModuleEmitter& m, const TileEntry& tiles) { TileEntryEmitter(m, tiles).Emit(); }

}  // namespace hpvm::cpu
