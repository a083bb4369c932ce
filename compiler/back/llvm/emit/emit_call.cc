// SPDX-License-Identifier: Apache-2.0
// Calls, launch queries and group operations.
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

namespace {

// Returns from a function of this module with `status` (an i32) and results that are not read.
void ReturnStatus(llvm::IRBuilder<>& b, llvm::Function* function, llvm::Value* status) {
  llvm::Type* result = function->getReturnType();
  b.CreateRet(result->isStructTy() ? b.CreateInsertValue(llvm::PoisonValue::get(result), status, 0) : status);
}

void ReturnTrap(llvm::IRBuilder<>& b, llvm::Function* function, TrapCode code) {
  ReturnStatus(b, function, b.getInt32(kTrapStatus + static_cast<uint32_t>(code)));
}

// Calls `callee` with the parameters of `function` except the first IR parameter, and returns its result.
void ForwardCall(llvm::IRBuilder<>& b, llvm::Function* function, llvm::Function* callee) {
  std::vector<llvm::Value*> arguments;
  for (unsigned i = 0; i < function->arg_size(); ++i) {
    if (i != kFirstParam) {
      arguments.push_back(function->getArg(i));
    }
  }
  llvm::CallInst* call = b.CreateCall(callee, arguments);
  call->setCallingConv(llvm::CallingConv::Fast);
  b.CreateRet(call);
}

ir::FunctionType WithReference(ir::FunctionType type) {
  type.params.insert(type.params.begin(), ir::Type::kI32);
  return type;
}

}  // namespace

llvm::Value* Bits(llvm::IRBuilder<>& b, llvm::Value* value) {
  unsigned width = value->getType()->getScalarSizeInBits();
  return b.CreateZExt(b.CreateBitCast(value, b.getIntNTy(width)), b.getInt64Ty());
}

// Declares a function with the reference and then the callee's parameters. It switches over references, so every
// address called is inside the image.
llvm::Function* ModuleEmitter::ReferenceCaller(uint32_t type_index) {
  llvm::Function*& caller = reference_callers[type_index];
  if (caller != nullptr) {
    return caller;
  }
  caller = Declare(WithReference(source.reference_types[type_index]), "reference" + std::to_string(type_index));
  auto new_block = [&](const char* name) { return llvm::BasicBlock::Create(context(), name, caller); };
  llvm::IRBuilder<> b(new_block("entry"));
  llvm::Value* reference = caller->getArg(kFirstParam);
  llvm::BasicBlock* null = new_block("null");
  llvm::BasicBlock* other = new_block("other");
  llvm::SwitchInst* branch = b.CreateSwitch(reference, other);
  branch->addCase(b.getInt32(0), null);
  for (size_t i = 0; i < source.references.size(); ++i) {
    if (source.references[i].type != type_index) {
      continue;
    }
    llvm::BasicBlock* block = new_block("case");
    branch->addCase(b.getInt32(source.first_reference + static_cast<uint32_t>(i)), block);
    b.SetInsertPoint(block);
    ForwardCall(b, caller, functions[source.references[i].function.index]);
  }
  b.SetInsertPoint(null);
  ReturnTrap(b, caller, TrapCode::kUninitializedElement);
  b.SetInsertPoint(other);
  if (source.is_linked) {
    llvm::BasicBlock* own = new_block("own");
    llvm::BasicBlock* foreign = new_block("foreign");
    llvm::Value* index = b.CreateSub(reference, b.getInt32(source.first_reference));
    b.CreateCondBr(b.CreateICmpULT(index, b.getInt32(static_cast<uint32_t>(source.references.size()))), own, foreign);
    b.SetInsertPoint(foreign);
    llvm::Function* host = HostCaller(type_index);
    std::vector<llvm::Value*> arguments;
    for (llvm::Argument& argument : caller->args()) {
      arguments.push_back(&argument);
    }
    llvm::CallInst* call = b.CreateCall(host, arguments);
    call->setCallingConv(llvm::CallingConv::Fast);
    b.CreateRet(call);
    b.SetInsertPoint(own);
  }
  ReturnTrap(b, caller, TrapCode::kIndirectCall);
  return caller;
}

// Passes the values through memory. Not inlined, because a thousand values would enlarge the caller's frame.
llvm::Function* ModuleEmitter::HostCaller(uint32_t type_index) {
  llvm::Function*& caller = host_callers[type_index];
  if (caller != nullptr) {
    return caller;
  }
  const ir::FunctionType& type = source.reference_types[type_index];
  caller = Declare(WithReference(type), "host" + std::to_string(type_index));
  caller->addFnAttr(llvm::Attribute::NoInline);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context(), "entry", caller));
  llvm::Type* i64 = b.getInt64Ty();
  size_t slots = std::max<size_t>({type.params.size(), type.results.size(), 1});
  llvm::Value* values = b.CreateAlloca(llvm::ArrayType::get(i64, slots));
  auto slot = [&](size_t i) { return b.CreateConstInBoundsGEP1_64(i64, values, i); };
  for (size_t i = 0; i < type.params.size(); ++i) {
    b.CreateStore(Bits(b, caller->getArg(static_cast<unsigned>(kFirstParam + 1 + i))), slot(i));
  }
  ContextFields fields(*this, b, caller->getArg(0), nullptr);
  llvm::Type* pointer = b.getPtrTy();
  llvm::FunctionType* host_type =
      llvm::FunctionType::get(b.getInt32Ty(), {pointer, b.getInt32Ty(), b.getInt32Ty(), pointer}, false);
  llvm::Value* code = b.CreateCall(host_type, fields.LoadInvariant(pointer, offsetof(CpuContext, host)),
                                   {caller->getArg(0), caller->getArg(kFirstParam), b.getInt32(type_index), values});
  llvm::BasicBlock* failed = llvm::BasicBlock::Create(context(), "failed", caller);
  llvm::BasicBlock* returned = llvm::BasicBlock::Create(context(), "returned", caller);
  b.CreateCondBr(b.CreateICmpNE(code, b.getInt32(0)), failed, returned);
  b.SetInsertPoint(failed);
  ReturnStatus(b, caller, b.CreateAdd(code, b.getInt32(kTrapStatus)));
  b.SetInsertPoint(returned);
  llvm::Value* result = b.getInt32(0);
  if (!type.results.empty()) {
    result = b.CreateInsertValue(llvm::PoisonValue::get(caller->getReturnType()), result, 0);
    for (size_t i = 0; i < type.results.size(); ++i) {
      llvm::Value* value = b.CreateLoad(TypeOf(type.results[i]), slot(i));  // Little-endian: the low part.
      result = b.CreateInsertValue(result, value, static_cast<unsigned>(i + 1));
    }
  }
  b.CreateRet(result);
  return caller;
}

// Declares a function with the context, the instance's id, the format and the operands' bits as parameters. Not
// inlined, so that the record enlarges no other frame.
llvm::Function* ModuleEmitter::Printer(size_t operands) {
  llvm::Function*& printer = printers[operands];
  if (printer != nullptr) {
    return printer;
  }
  llvm::IRBuilder<> b(context());
  llvm::Type* i64 = b.getInt64Ty();
  llvm::Type* i32 = b.getInt32Ty();
  llvm::Type* pointer = b.getPtrTy();
  std::vector<llvm::Type*> params = {pointer, i64, i64, i64, i32};
  params.resize(params.size() + operands, i64);
  printer =
      llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), params, false), llvm::GlobalValue::InternalLinkage,
                             "print" + std::to_string(operands), module.get());
  printer->setCallingConv(llvm::CallingConv::Fast);
  SetAttributes(printer);
  printer->addFnAttr(llvm::Attribute::NoInline);
  b.SetInsertPoint(llvm::BasicBlock::Create(context(), "entry", printer));
  constexpr unsigned kFormat = 4;
  llvm::Value* values = b.CreateAlloca(llvm::ArrayType::get(i64, 3 + operands));
  unsigned slot = 0;
  for (unsigned i = 1; i < printer->arg_size(); ++i) {
    if (i != kFormat) {
      b.CreateStore(printer->getArg(i), b.CreateConstInBoundsGEP1_64(i64, values, slot++));
    }
  }
  ContextFields fields(*this, b, printer->getArg(0), nullptr);
  b.CreateCall(llvm::FunctionType::get(b.getVoidTy(), {pointer, i32, pointer}, false),
               fields.LoadInvariant(pointer, offsetof(CpuContext, print)),
               {printer->getArg(0), printer->getArg(kFormat), values});
  b.CreateRetVoid();
  return printer;
}

void FunctionEmitter::EmitPrint(const ir::Op& op) {
  Values arguments = {context_, id_[0], id_[1], id_[2], I32(static_cast<uint32_t>(op.imm))};
  for (llvm::Value* operand : Operands(op)) {
    arguments.push_back(Bits(b_, operand));
  }
  b_.CreateCall(m_.Printer(op.operand_count), arguments)->setCallingConv(llvm::CallingConv::Fast);
}

void FunctionEmitter::ReturnIfFailed(llvm::Value* status) {
  if (failed_block_ == nullptr) {
    failed_block_ = NewBlock("failed");
  }
  llvm::BasicBlock* next = NewBlock("called");
  b_.CreateCondBr(b_.CreateICmpNE(status, I32(0)), failed_block_, next,
                  llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(next);
}

void FunctionEmitter::EmitCall(const ir::Op& op) {
  auto index = static_cast<uint32_t>(op.imm);
  bool is_direct = op.code == Opcode::kCall;
  llvm::Function* callee = is_direct ? m_.functions[index] : m_.ReferenceCaller(index);
  Values arguments = {context_, arguments_, id_[0], id_[1], id_[2]};
  for (llvm::Value* operand : Operands(op)) {
    arguments.push_back(operand);
  }
  llvm::CallInst* call = b_.CreateCall(callee, arguments);
  call->setCallingConv(llvm::CallingConv::Fast);
  bool has_results = call->getType()->isStructTy();
  llvm::Value* status = has_results ? b_.CreateExtractValue(call, 0) : call;
  if (!is_direct) {
    TrapIf(b_.CreateICmpUGE(status, I32(kTrapStatus)), b_.CreateSub(status, I32(kTrapStatus)), op.source, nullptr,
           nullptr);
  }
  ReturnIfFailed(status);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    values_[op.first_result.index + i] = b_.CreateExtractValue(call, i + 1);
  }
}

void FunctionEmitter::EmitQuery(const ir::Op& op) {
  llvm::Value* operand = Operand(op, 0);
  llvm::Value* result = nullptr;
  if (op.code == Opcode::kBufferSize) {
    result = fields_.BufferSize(operand);
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
      // A group is never empty; the maximum keeps the division from faulting whatever the context contains.
      llvm::Value* group = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, field(offsetof(CpuContext, group)), I64(1));
      return op.code == Opcode::kGroupId ? b_.CreateUDiv(id_[dimension], group) : b_.CreateURem(id_[dimension], group);
    }
  }
}

void FunctionEmitter::EmitSync(const ir::Op& op) {
  if (op.code == Opcode::kBarrier) {
    llvm::Value* barrier = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, barrier));
    llvm::FunctionType* type = llvm::FunctionType::get(b_.getInt32Ty(), {b_.getPtrTy(), b_.getInt64Ty()}, false);
    // Identifies function and operation: the same for every copy of the call that LLVM makes.
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
  // Rounding may exceed a limit that is no multiple of 16; then the rest of the memory is taken.
  llvm::Value* end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateAdd(used, rounded), limit);
  fields_.Store(end, offsetof(CpuContext, group_memory_used));
  llvm::Value* base = fields_.LoadInvariant(i64, offsetof(CpuContext, group_memory_base));
  SetResult(op, b_.CreateTrunc(b_.CreateAdd(base, used), m_.TypeOf(f_.type_of(op.first_result))));
}

}  // namespace hpvm::cpu
