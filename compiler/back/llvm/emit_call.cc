// SPDX-License-Identifier: Apache-2.0
// Calls, queries of the launch, and what concerns the group.
#include "compiler/back/llvm/emitter.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

using ir::CpuArgument;
using ir::CpuContext;
using ir::Opcode;
using ir::TrapCode;

namespace {

// What a dispatcher returns when the table has no such entry; the caller makes it a trap, since it knows the place.
constexpr uint32_t kNoEntry = 2;

}  // namespace

// Its parameters are the index and then the callee's. A table is data, so a switch over it has every address inside the
// image.
llvm::Function* ModuleEmitter::Dispatcher(uint32_t type_index) {
  llvm::Function*& dispatcher = dispatchers[type_index];
  if (dispatcher != nullptr) {
    return dispatcher;
  }
  const ir::FunctionType& type = source.indirect_types[type_index];
  ir::FunctionType with_index = type;
  with_index.params.insert(with_index.params.begin(), ir::Type::kI32);
  dispatcher = Declare(with_index, "dispatch" + std::to_string(type_index));
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context(), "entry", dispatcher));
  llvm::BasicBlock* missing = llvm::BasicBlock::Create(context(), "missing", dispatcher);
  llvm::SwitchInst* branch = b.CreateSwitch(dispatcher->getArg(kFirstParam), missing);
  std::vector<llvm::Value*> arguments;
  for (unsigned i = 0; i < dispatcher->arg_size(); ++i) {
    if (i != kFirstParam) {
      arguments.push_back(dispatcher->getArg(i));
    }
  }
  for (size_t i = 0; i < source.table.size(); ++i) {
    ir::FunctionId callee = source.table[i].function;
    if (!callee.valid() || !(source.function(callee).type == type)) {
      continue;
    }
    llvm::BasicBlock* block = llvm::BasicBlock::Create(context(), "case", dispatcher);
    branch->addCase(b.getInt32(static_cast<uint32_t>(i)), block);
    b.SetInsertPoint(block);
    llvm::CallInst* call = b.CreateCall(functions[callee.index], arguments);
    call->setCallingConv(llvm::CallingConv::Fast);
    b.CreateRet(call);
  }
  b.SetInsertPoint(missing);
  llvm::Type* result = dispatcher->getReturnType();
  b.CreateRet(result->isStructTy() ? b.CreateInsertValue(llvm::PoisonValue::get(result), b.getInt32(kNoEntry), 0)
                                   : b.getInt32(kNoEntry));
  return dispatcher;
}

void FunctionEmitter::EmitCall(const ir::Op& op) {
  bool is_indirect = op.code == Opcode::kCallIndirect;
  auto index = static_cast<uint32_t>(op.imm);
  llvm::Function* callee = is_indirect ? m_.Dispatcher(index) : m_.functions[index];
  Values arguments = {context_, arguments_, id_[0], id_[1], id_[2]};
  for (llvm::Value* operand : Operands(op)) {
    arguments.push_back(operand);
  }
  llvm::CallInst* call = b_.CreateCall(callee, arguments);
  call->setCallingConv(llvm::CallingConv::Fast);
  bool has_results = call->getType()->isStructTy();
  llvm::Value* status = has_results ? b_.CreateExtractValue(call, 0) : call;
  if (is_indirect) {
    TrapIf(b_.CreateICmpEQ(status, I32(kNoEntry)), TrapCode::kIndirectCall, op.source);
  }
  if (failed_block_ == nullptr) {
    failed_block_ = NewBlock("failed");
  }
  llvm::BasicBlock* next = NewBlock("called");
  b_.CreateCondBr(b_.CreateICmpNE(status, I32(0)), failed_block_, next,
                  llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(next);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    values_[op.first_result.index + i] = b_.CreateExtractValue(call, i + 1);
  }
}

void FunctionEmitter::EmitQuery(const ir::Op& op) {
  llvm::Value* operand = Operand(op, 0);
  llvm::Value* result = nullptr;
  if (op.code == Opcode::kBufferSize) {
    result = BufferSize(operand);
  } else {
    bool is_count = op.code == Opcode::kInstanceCount || op.code == Opcode::kGroupSize;
    result = I64(is_count ? 1 : 0);
    auto* constant = llvm::dyn_cast<llvm::ConstantInt>(operand);
    for (unsigned d = 0; d < 3; ++d) {
      if (constant == nullptr) {
        result = b_.CreateSelect(b_.CreateICmpEQ(operand, I32(d)), EmitQueryOf(op, d), result);
      } else if (constant->getZExtValue() == d) {
        result = EmitQueryOf(op, d);
      }
    }
  }
  SetResult(op, b_.CreateTrunc(result, m_.TypeOf(f_.type_of(op.first_result))));
}

llvm::Value* FunctionEmitter::EmitQueryOf(const ir::Op& op, unsigned dimension) {
  llvm::Type* i64 = b_.getInt64Ty();
  auto field = [&](size_t offset) { return fields_.LoadInvariant(i64, offset + 8 * dimension); };
  switch (op.code) {
    case Opcode::kInstanceId:
      return id_[dimension];
    case Opcode::kInstanceCount:
      return field(offsetof(CpuContext, extent));
    case Opcode::kGroupSize:
      return field(offsetof(CpuContext, group));
    default: {
      // A group is never empty; the maximum keeps the division from faulting whatever the context says.
      llvm::Value* group = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, field(offsetof(CpuContext, group)), I64(1));
      return op.code == Opcode::kGroupId ? b_.CreateUDiv(id_[dimension], group) : b_.CreateURem(id_[dimension], group);
    }
  }
}

llvm::Value* FunctionEmitter::BufferSize(llvm::Value* param) {
  llvm::Value* result = I64(0);
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(param);
  for (uint32_t k = 0; k < m_.source.params.size(); ++k) {
    if (!m_.source.params[k].is_buffer || (constant != nullptr && constant->getZExtValue() != k)) {
      continue;
    }
    llvm::Value* bytes = fields_.LoadArgument(b_.getInt64Ty(), k, offsetof(CpuArgument, bytes));
    result = constant != nullptr ? bytes : b_.CreateSelect(b_.CreateICmpEQ(param, I32(k)), bytes, result);
  }
  return result;
}

void FunctionEmitter::EmitSync(const ir::Op& op) {
  if (op.code == Opcode::kBarrier) {
    llvm::Value* barrier = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, barrier));
    llvm::FunctionType* type = llvm::FunctionType::get(b_.getInt32Ty(), {b_.getPtrTy(), b_.getInt64Ty()}, false);
    // Function and operation: the same wherever LLVM copies the call to.
    const auto function = static_cast<uint64_t>(&f_ - m_.source.functions.data());
    const auto operation = static_cast<uint64_t>(&op - f_.ops.data());
    llvm::Value* code = b_.CreateCall(type, barrier, {context_, I64(function << 32 | operation)});
    TrapIf(b_.CreateICmpNE(code, I32(0)), code, op.source, nullptr, nullptr);
    return;
  }
  llvm::Type* i64 = b_.getInt64Ty();
  llvm::Value* bytes = Wide(Operand(op, 0));
  llvm::Value* used = fields_.Load(i64, offsetof(CpuContext, group_memory_used));
  llvm::Value* limit = fields_.LoadInvariant(i64, offsetof(CpuContext, group_memory_bytes_max));
  llvm::Value* room = b_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, limit, used);
  TrapIf(b_.CreateICmpUGT(bytes, room), TrapCode::kGroupMemoryExhausted, op.source);
  llvm::Value* rounded = b_.CreateAnd(b_.CreateAdd(bytes, I64(15)), I64(~uint64_t{15}));
  // Rounding may pass a limit that is no multiple of 16: then the rest of the memory is taken.
  llvm::Value* end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateAdd(used, rounded), limit);
  fields_.Store(end, offsetof(CpuContext, group_memory_used));
  llvm::Value* base = fields_.LoadInvariant(i64, offsetof(CpuContext, group_memory_base));
  SetResult(op, b_.CreateTrunc(b_.CreateAdd(base, used), m_.TypeOf(f_.type_of(op.first_result))));
}

}  // namespace hpvm::cpu
