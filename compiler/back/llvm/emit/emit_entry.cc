// SPDX-License-Identifier: Apache-2.0
// The image's entry runs instances [begin, end), x fastest. It divides once per axis at the start, then counts the ids
// up.
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {
namespace {

class EntryEmitter {
 public:
  EntryEmitter(ModuleEmitter& m, const std::string& name, llvm::Function* instance, llvm::Function* again)
      : m_(m),
        instance_(instance),
        again_(again),
        function_(DeclareEntry(m, name)),
        b_(m.context()),
        fields_(m, b_, function_->getArg(0), nullptr),
        context_(function_->getArg(0)) {}
  void Emit() {
    llvm::BasicBlock* start = NewBlock("start");
    loop_ = NewBlock("instance");
    stopped_ = NewBlock("stopped");
    trapped_ = NewBlock("trapped");
    done_ = NewBlock("done");
    b_.SetInsertPoint(start);
    EmitStart();
    EmitInstance();
    EmitStopped();
    b_.SetInsertPoint(done_);
    b_.CreateRet(b_.getInt32(CpuOutcome::kCpuDone));
  }

 private:
  llvm::Value* I64(uint64_t value) { return b_.getInt64(value); }
  llvm::BasicBlock* NewBlock(const char* name) { return llvm::BasicBlock::Create(m_.context(), name, function_); }
  void EmitStart() {
    llvm::BasicBlock* some = NewBlock("some");
    b_.CreateCondBr(b_.CreateICmpULT(function_->getArg(1), function_->getArg(2)), some, done_);
    b_.SetInsertPoint(some);
    arguments_ = fields_.LoadArguments();
    llvm::Value* rest = function_->getArg(1);
    for (unsigned d = 0; d < 2; ++d) {
      llvm::Value* extent = fields_.LoadInvariant(b_.getInt64Ty(), offsetof(CpuContext, extent) + 8 * d);
      // A launch with instances has no empty axis; the maximum keeps the division from faulting whatever the context
      // contains.
      extent_[d] = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, extent, I64(1));
      start_[d] = b_.CreateURem(rest, extent_[d]);
      rest = b_.CreateUDiv(rest, extent_[d]);
    }
    start_[2] = rest;
    start_end_ = b_.GetInsertBlock();
    b_.CreateBr(loop_);
  }
  void EmitInstance() {
    b_.SetInsertPoint(loop_);
    linear_ = b_.CreatePHI(b_.getInt64Ty(), 2);
    linear_->addIncoming(function_->getArg(1), start_end_);
    for (unsigned d = 0; d < 3; ++d) {
      id_[d] = b_.CreatePHI(b_.getInt64Ty(), 2);
      id_[d]->addIncoming(start_[d], start_end_);
    }
    llvm::BasicBlock* run = NewBlock("run");
    llvm::MDNode* unlikely = llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights();
    b_.CreateCondBr(fields_.IsStopped(), stopped_, run, unlikely);
    b_.SetInsertPoint(run);
    if (m_.source.uses_group_memory) {
      fields_.Store(I64(0), offsetof(CpuContext, group_memory_used));
    }
    llvm::Value* status = Call();
    llvm::BasicBlock* finished = NewBlock("finished");
    b_.CreateCondBr(b_.CreateICmpNE(status, b_.getInt32(0)), trapped_, finished, unlikely);
    b_.SetInsertPoint(finished);
    EmitRestore();
    EmitNext();
  }
  // Calls the instance and returns its status.
  llvm::Value* Call() {
    llvm::CallInst* status = b_.CreateCall(instance_, Arguments());
    status->setCallingConv(llvm::CallingConv::Fast);
    if (again_ == nullptr) {
      return status;
    }
    llvm::BasicBlock* repeat = NewBlock("repeat");
    llvm::BasicBlock* ran = NewBlock("ran");
    llvm::BasicBlock* before = b_.GetInsertBlock();
    b_.CreateCondBr(b_.CreateICmpEQ(status, b_.getInt32(kRepeatStatus)), repeat, ran,
                    llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
    b_.SetInsertPoint(repeat);
    llvm::CallInst* second = b_.CreateCall(again_, Arguments());
    second->setCallingConv(llvm::CallingConv::Fast);
    second->setIsNoInline();
    llvm::BasicBlock* repeated = b_.GetInsertBlock();
    b_.CreateBr(ran);
    b_.SetInsertPoint(ran);
    llvm::PHINode* last = b_.CreatePHI(b_.getInt32Ty(), 2);
    last->addIncoming(status, before);
    last->addIncoming(second, repeated);
    return last;
  }
  void EmitRestore() {
    llvm::BasicBlock* restore = NewBlock("restore");
    llvm::BasicBlock* clean = NewBlock("clean");
    b_.CreateCondBr(IsDirty(), restore, clean);
    b_.SetInsertPoint(restore);
    llvm::Value* function = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, restore));
    b_.CreateCall(llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy()}, false), function, {context_});
    b_.CreateBr(clean);
    b_.SetInsertPoint(clean);
  }
  void EmitNext() {
    llvm::Value* next = b_.CreateAdd(linear_, I64(1));
    llvm::Value* x = b_.CreateAdd(id_[0], I64(1));
    llvm::Value* x_ends = b_.CreateICmpEQ(x, extent_[0]);
    llvm::Value* y = b_.CreateSelect(x_ends, b_.CreateAdd(id_[1], I64(1)), id_[1]);
    llvm::Value* y_ends = b_.CreateICmpEQ(y, extent_[1]);
    llvm::BasicBlock* here = b_.GetInsertBlock();
    linear_->addIncoming(next, here);
    id_[0]->addIncoming(b_.CreateSelect(x_ends, I64(0), x), here);
    id_[1]->addIncoming(b_.CreateSelect(y_ends, I64(0), y), here);
    id_[2]->addIncoming(b_.CreateSelect(y_ends, b_.CreateAdd(id_[2], I64(1)), id_[2]), here);
    b_.CreateCondBr(b_.CreateICmpULT(next, function_->getArg(2)), loop_, done_);
  }
  void EmitStopped() {
    b_.SetInsertPoint(stopped_);
    b_.CreateCall(m_.Helper("hpvm.record"), {context_, b_.getInt32(static_cast<uint32_t>(TrapCode::kStopped)),
                                             b_.getInt32(m_.source.entry.index), b_.getInt32(0), I64(0), I64(0)});
    b_.CreateBr(trapped_);
    b_.SetInsertPoint(trapped_);
    for (unsigned d = 0; d < 3; ++d) {
      fields_.Store(id_[d], offsetof(CpuContext, trap_instance) + 8 * d);
    }
    b_.CreateRet(b_.getInt32(CpuOutcome::kCpuTrapped));
  }
  std::vector<llvm::Value*> Arguments() {
    std::vector<llvm::Value*> arguments = {context_, arguments_, id_[0], id_[1], id_[2]};
    for (llvm::Value* param : LoadParams(m_, b_, fields_)) {
      arguments.push_back(param);
    }
    return arguments;
  }
  // Returns true if the instance has changed anything that the next one must find in its initial state.
  llvm::Value* IsDirty() {
    llvm::Value* dirty = b_.CreateICmpNE(fields_.Load(b_.getInt64Ty(), offsetof(CpuContext, dirty_count)), I64(0));
    if (m_.has_grow) {
      llvm::Value* bytes = fields_.Load(b_.getInt64Ty(), offsetof(CpuContext, memory_bytes));
      dirty = b_.CreateOr(dirty, b_.CreateICmpNE(bytes, I64(m_.source.memory_bytes)));
    }
    if (m_.writes_state || m_.marks_globals) {
      llvm::Value* written = fields_.Load(b_.getInt32Ty(), offsetof(CpuContext, state_written));
      dirty = b_.CreateOr(dirty, b_.CreateICmpNE(written, b_.getInt32(0)));
    }
    if (m_.marks_globals) {
      return dirty;
    }
    llvm::Value* globals = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, globals));
    for (uint64_t index : m_.written_globals) {
      const ir::Global& global = m_.source.globals[index];
      llvm::Type* bits = b_.getIntNTy(8 * ir::Bytes(global.type));
      llvm::LoadInst* now = b_.CreateLoad(bits, b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), globals, index));
      now->setMetadata(llvm::LLVMContext::MD_tbaa, m_.context_tag);
      llvm::Value* initial = b_.CreateTrunc(I64(global.init), bits);
      dirty = b_.CreateOr(dirty, b_.CreateICmpNE(now, initial));
    }
    return dirty;
  }

  ModuleEmitter& m_;
  llvm::Function* instance_;
  llvm::Function* again_;
  llvm::Function* function_;
  llvm::IRBuilder<> b_;
  ContextFields fields_;
  llvm::Value* context_;
  llvm::Value* arguments_ = nullptr;
  llvm::Value* extent_[2] = {};
  llvm::Value* start_[3] = {};
  llvm::PHINode* linear_ = nullptr;
  llvm::PHINode* id_[3] = {};
  llvm::BasicBlock* start_end_ = nullptr;
  llvm::BasicBlock* loop_ = nullptr;
  llvm::BasicBlock* stopped_ = nullptr;
  llvm::BasicBlock* trapped_ = nullptr;
  llvm::BasicBlock* done_ = nullptr;
};

}  // namespace

llvm::Function* DeclareEntry(ModuleEmitter& m, const std::string& name) {
  llvm::Type* i64 = llvm::Type::getInt64Ty(m.context());
  llvm::FunctionType* type = llvm::FunctionType::get(llvm::Type::getInt32Ty(m.context()),
                                                     {llvm::PointerType::get(m.context(), 0), i64, i64}, false);
  llvm::Function* entry = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, name, m.module.get());
  entry->setVisibility(llvm::GlobalValue::HiddenVisibility);
  entry->setDSOLocal(true);
  m.SetAttributes(entry);
  return entry;
}

llvm::SmallVector<llvm::Value*, 8> LoadParams(ModuleEmitter& m, llvm::IRBuilder<>& b, ContextFields& fields) {
  llvm::SmallVector<llvm::Value*, 8> params;
  for (uint32_t k = 0; k < m.source.params.size(); ++k) {
    llvm::Type* type = m.TypeOf(m.source.params[k].type);
    llvm::Type* bits = b.getIntNTy(8 * ir::Bytes(m.source.params[k].type));
    llvm::Value* value = b.CreateTrunc(fields.LoadArgument(b.getInt64Ty(), k, offsetof(CpuArgument, base)), bits);
    params.push_back(b.CreateBitCast(value, type));
  }
  return params;
}

void EmitEntry(ModuleEmitter& m, const std::string& name, llvm::Function* function, llvm::Function* again) {
  EntryEmitter(m, name, function, again).Emit();
}

}  // namespace hpvm::cpu
