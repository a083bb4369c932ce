// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/group_loop.h"

#include "compiler/back/llvm/gang/gang.h"
#include "compiler/back/llvm/gang/gang_tile.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {
namespace {

class GroupLoopEmitter {
 public:
  GroupLoopEmitter(ModuleEmitter& m, const GroupLoop& loop, llvm::Function* function)
      : m_(m),
        loop_(loop),
        function_(function),
        b_(m.context()),
        fields_(m, b_, function->getArg(0), function->getArg(1)) {}
  void Emit() {
    b_.SetInsertPoint(NewBlock("start"));
    LoadSizes();
    EmitGangs();
    if (loop_.interval->check.has_value()) {
      EmitCheck();
    } else {
      Return(b_.getInt32(0), nullptr);
    }
  }

 private:
  // A loop from 0 up to a limit; `place` is the loop variable.
  struct Counter {
    llvm::BasicBlock *header, *body, *exit;
    llvm::PHINode* place;
  };
  llvm::Value* I64(uint64_t value) { return b_.getInt64(value); }
  llvm::BasicBlock* NewBlock(const char* name) { return llvm::BasicBlock::Create(m_.context(), name, function_); }
  Counter Begin(llvm::Value* limit) {
    llvm::BasicBlock* before = b_.GetInsertBlock();
    Counter counter{NewBlock("header"), NewBlock("body"), NewBlock("exit"), nullptr};
    b_.CreateBr(counter.header);
    b_.SetInsertPoint(counter.header);
    counter.place = b_.CreatePHI(b_.getInt64Ty(), 2);
    counter.place->addIncoming(I64(0), before);
    b_.CreateCondBr(b_.CreateICmpULT(counter.place, limit), counter.body, counter.exit);
    b_.SetInsertPoint(counter.body);
    return counter;
  }
  void End(const Counter& counter, llvm::Value* next) {
    counter.place->addIncoming(next, b_.GetInsertBlock());
    b_.CreateBr(counter.header);
    b_.SetInsertPoint(counter.exit);
  }
  void LoadSizes() {
    llvm::Value* group[3];
    for (unsigned d = 0; d < 3; ++d) {
      auto field = [&](size_t offset) { return fields_.LoadInvariant(b_.getInt64Ty(), offset + 8 * d); };
      group[d] = field(offsetof(CpuContext, group));
      llvm::Value* left = b_.CreateSub(field(offsetof(CpuContext, extent)), function_->getArg(kFirstId + d));
      counts_[d] = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, group[d], left);
    }
    llvm::Value* rounded = b_.CreateAdd(group[0], I64(loop_.shape.lanes - 1u));
    gangs_in_row_ = b_.CreateUDiv(rounded, I64(loop_.shape.lanes));
    group_y_ = group[1];
  }
  // Returns the offset in bytes of a gang's values.
  llvm::Value* OffsetOf(llvm::Value* x, llvm::Value* y, llvm::Value* z) {
    llvm::Value* gang = b_.CreateAdd(b_.CreateMul(z, gangs_in_row_), b_.CreateUDiv(x, I64(loop_.shape.lanes)));
    llvm::Value* number = b_.CreateAdd(b_.CreateMul(gang, group_y_), y);
    return b_.CreateMul(number, I64(uint64_t{m_.group_value_bytes} * loop_.shape.lanes));
  }
  void EmitGangs() {
    const uint64_t lanes = loop_.shape.lanes, rows = loop_.shape.rows;
    const Counter z = Begin(counts_[2]);
    const Counter x = Begin(counts_[0]);
    llvm::Value* left = b_.CreateSub(counts_[0], x.place);
    llvm::Value* count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, left, I64(lanes));
    llvm::Value* is_whole = b_.CreateICmpEQ(count, I64(lanes));
    const Counter y = Begin(counts_[1]);
    llvm::Value* const place[3] = {x.place, y.place, z.place};
    llvm::BasicBlock *whole = NewBlock("whole"), *masked = NewBlock("masked"), *next = NewBlock("next");
    llvm::SmallVector<std::pair<llvm::BasicBlock*, uint64_t>, 3> ends;  // With the number of rows done.
    auto run = [&](llvm::BasicBlock* block, llvm::Function* gang, uint64_t done) {
      b_.SetInsertPoint(block);
      Call(gang, count, place);
      ends.push_back({b_.GetInsertBlock(), done});
      b_.CreateBr(next);
    };
    b_.CreateCondBr(is_whole, whole, masked);
    if (loop_.rows != nullptr) {
      llvm::BasicBlock *several = NewBlock("rows"), *single = NewBlock("row");
      b_.SetInsertPoint(whole);
      b_.CreateCondBr(b_.CreateICmpUGE(b_.CreateSub(counts_[1], y.place), I64(rows)), several, single);
      run(several, loop_.rows, rows);
      whole = single;
    }
    run(whole, loop_.whole, 1);
    run(masked, loop_.masked, 1);
    b_.SetInsertPoint(next);
    llvm::PHINode* done = b_.CreatePHI(b_.getInt64Ty(), static_cast<unsigned>(ends.size()));
    for (const auto& [block, count_done] : ends) {
      done->addIncoming(I64(count_done), block);
    }
    End(y, b_.CreateAdd(y.place, done));
    End(x, b_.CreateAdd(x.place, I64(lanes)));
    End(z, b_.CreateAdd(z.place, I64(1)));
  }
  // `place` is the gang's position within the group.
  void Call(llvm::Function* gang, llvm::Value* count, llvm::Value* const place[3]) {
    llvm::SmallVector<llvm::Value*, 8> operands{function_->getArg(0), function_->getArg(1)};
    llvm::Value* id[3];
    for (unsigned d = 0; d < 3; ++d) {
      id[d] = b_.CreateAdd(function_->getArg(kFirstId + d), place[d], "", /*HasNUW=*/true);
      operands.push_back(id[d]);
    }
    operands.push_back(count);
    for (unsigned i = kFirstParam; i < function_->arg_size(); ++i) {
      operands.push_back(function_->getArg(i));
    }
    llvm::Type* address = m_.TypeOf(m_.source.address_type());
    operands.push_back(b_.CreateTrunc(OffsetOf(place[0], place[1], place[2]), address));
    llvm::CallInst* status = b_.CreateCall(gang, operands);
    status->setCallingConv(llvm::CallingConv::Fast);
    llvm::BasicBlock *failed = NewBlock("failed"), *passed = NewBlock("passed");
    b_.CreateCondBr(b_.CreateICmpEQ(status, b_.getInt32(kGangDone)), passed, failed,
                    llvm::MDBuilder(m_.context()).createLikelyBranchWeights());
    b_.SetInsertPoint(failed);
    llvm::Value* where = b_.CreateZExt(b_.CreateSub(status, b_.getInt32(kGangTrapped)), b_.getInt64Ty());
    llvm::Value* instance[3] = {b_.CreateAdd(id[0], b_.CreateAnd(where, I64(0xffff))),
                                b_.CreateAdd(id[1], b_.CreateLShr(where, I64(16))), id[2]};
    StoreInstance(instance);
    Return(b_.getInt32(1), nullptr);
    b_.SetInsertPoint(passed);
  }
  // Compares the paths that instances take, gang by gang, with the first instance's.
  void EmitCheck() {
    const uint64_t lanes = loop_.shape.lanes;
    auto* type = llvm::FixedVectorType::get(b_.getInt32Ty(), loop_.shape.lanes);
    llvm::Value* values = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, group_values));
    llvm::Value* ways = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), values, loop_.interval->check->place * lanes);
    llvm::Value* first_way = b_.CreateLoad(b_.getInt32Ty(), ways);
    const Counter z = Begin(counts_[2]);
    const Counter x = Begin(counts_[0]);
    llvm::Value* left =
        b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateSub(counts_[0], x.place), I64(lanes)),
                       b_.getInt32Ty());
    llvm::SmallVector<uint32_t, 16> numbers;
    for (uint32_t i = 0; i < lanes; ++i) {
      numbers.push_back(i);
    }
    llvm::Value* exists = b_.CreateICmpULT(llvm::ConstantDataVector::get(m_.context(), numbers),
                                           b_.CreateVectorSplat(loop_.shape.lanes, left));
    const Counter y = Begin(counts_[1]);
    llvm::Value* at = b_.CreateGEP(b_.getInt8Ty(), ways, OffsetOf(x.place, y.place, z.place));
    llvm::Value* theirs = b_.CreateAlignedLoad(type, at, llvm::Align(4));
    llvm::Value* differs =
        b_.CreateSelect(exists, b_.CreateICmpNE(theirs, b_.CreateVectorSplat(loop_.shape.lanes, first_way)),
                        llvm::Constant::getNullValue(exists->getType()));
    llvm::BasicBlock *diverged = NewBlock("diverged"), *together = NewBlock("together");
    b_.CreateCondBr(b_.CreateOrReduce(differs), diverged, together,
                    llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
    b_.SetInsertPoint(diverged);
    llvm::Value* const place[3] = {x.place, y.place, z.place};
    EmitDivergence(first_way, differs, theirs, place);
    b_.SetInsertPoint(together);
    End(y, b_.CreateAdd(y.place, I64(1)));
    End(x, b_.CreateAdd(x.place, I64(lanes)));
    End(z, b_.CreateAdd(z.place, I64(1)));
    Return(b_.getInt32(0), first_way);
  }
  // Some instances take another path than the first; the first instance of all that reaches a barrier traps there.
  void EmitDivergence(llvm::Value* first_way, llvm::Value* differs, llvm::Value* ways, llvm::Value* const place[3]) {
    const pass::GroupCheck& check = *loop_.interval->check;
    llvm::Value* bits = b_.CreateBitCast(differs, b_.getIntNTy(loop_.shape.lanes));
    llvm::Value* lane = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, bits, b_.getTrue());
    llvm::Value* other_way = b_.CreateExtractElement(ways, b_.CreateZExtOrTrunc(lane, b_.getInt32Ty()));
    llvm::Value* is_first = b_.getFalse();
    llvm::Value* source = b_.getInt32(0);
    for (llvm::Value* way : {other_way, first_way}) {
      for (size_t i = 0; i < check.barriers.size(); ++i) {
        if (check.barriers[i].has_value()) {
          llvm::Value* is_it = b_.CreateICmpEQ(way, b_.getInt32(static_cast<uint32_t>(i)));
          source = b_.CreateSelect(is_it, b_.getInt32(*check.barriers[i]), source);
          if (way == first_way) {
            is_first = b_.CreateOr(is_first, is_it);
          }
        }
      }
    }
    llvm::Value* instance[3];
    for (unsigned d = 0; d < 3; ++d) {
      llvm::Value* first = function_->getArg(kFirstId + d);
      llvm::Value* at = b_.CreateAdd(first, place[d]);
      instance[d] =
          b_.CreateSelect(is_first, first, d == 0 ? b_.CreateAdd(at, b_.CreateZExtOrTrunc(lane, b_.getInt64Ty())) : at);
    }
    b_.CreateCall(m_.Helper("hpvm.record"),
                  {function_->getArg(0), b_.getInt32(static_cast<uint32_t>(TrapCode::kBarrierDivergence)),
                   b_.getInt32(check.function), source, I64(0), I64(0)});
    StoreInstance(instance);
    Return(b_.getInt32(1), nullptr);
  }
  void Return(llvm::Value* status, llvm::Value* result) {
    llvm::Type* type = function_->getReturnType();
    if (!type->isStructTy()) {
      b_.CreateRet(status);
      return;
    }
    llvm::Value* both = b_.CreateInsertValue(llvm::PoisonValue::get(type), status, 0);
    b_.CreateRet(result == nullptr ? both : b_.CreateInsertValue(both, result, 1));
  }
  void StoreInstance(llvm::Value* const id[3]) {
    for (unsigned d = 0; d < 3; ++d) {
      fields_.Store(id[d], offsetof(CpuContext, trap_instance) + 8 * d);
    }
  }

  ModuleEmitter& m_;
  const GroupLoop& loop_;
  llvm::Function* function_;
  llvm::IRBuilder<> b_;
  ContextFields fields_;
  llvm::Value* counts_[3] = {};          // Instances of the group that exist.
  llvm::Value* gangs_in_row_ = nullptr;  // Along x, in a whole group.
  llvm::Value* group_y_ = nullptr;
};

}  // namespace

void EmitGroupLoop(ModuleEmitter& m, const GroupLoop& loop, llvm::Function* function) {
  GroupLoopEmitter(m, loop, function).Emit();
}

// --- Values that the lanes of a tile keep across barriers.

// Accesses all lanes at once, including lanes without an instance: each gang has space for every lane.
Status GangOps::EmitKept(const ir::Op& op) {
  llvm::Type* type = tile_.VectorOf(m_.TypeOf(op.type));
  llvm::MDBuilder builder(m_.context());
  llvm::MDNode* node = builder.createTBAAScalarTypeNode("kept values", builder.createTBAARoot("hpvm"));
  llvm::MDNode* tag = builder.createTBAAStructTagNode(node, node, 0);
  llvm::Value* base = tile_.entry_fields.LoadInvariant(b_.getPtrTy(), offsetof(ir::CpuContext, group_values));
  llvm::Value* offset = b_.CreateZExtOrTrunc(tile_.Scalar(tile_.OperandId(op, 0), 0), b_.getInt64Ty());
  llvm::Value* gang = b_.CreateInBoundsGEP(b_.getInt8Ty(), base, offset);
  const llvm::Align align(4 *
                          tile_.lanes());  // Values are multiples of 4 bytes, and the whole lies at a multiple of 64.
  Tiled value;
  for (unsigned row = 0; row < tile_.rows(); ++row) {
    for (unsigned column = 0; column < tile_.columns(); ++column) {
      const uint64_t place = (uint64_t{row * tile_.columns() + column} * m_.group_value_bytes + op.imm) * tile_.lanes();
      llvm::Value* pointer = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), gang, place);
      llvm::Instruction* access = nullptr;
      if (op.code == ir::Opcode::kLoad) {
        access = b_.CreateAlignedLoad(type, pointer, std::min(align, llvm::Align(64)));
        value.push_back(access);
      } else {
        access = b_.CreateAlignedStore(tile_.Operand(op, 1, row, column), pointer, std::min(align, llvm::Align(64)));
      }
      access->setMetadata(llvm::LLVMContext::MD_tbaa, tag);
    }
  }
  if (op.code != ir::Opcode::kLoad) {
    return absl::OkStatus();
  }
  if (const pass::Layout& layout = tile_.LayoutOf(op.first_result);
      layout.kind != pass::Layout::Kind::kVarying || tile_.RowsOf(layout) != tile_.rows()) {
    return Internal("The plan treats a value that each instance keeps as one that instances share.");
  }
  tile_.Set(op.first_result, std::move(value));
  return absl::OkStatus();
}

}  // namespace hpvm::cpu
