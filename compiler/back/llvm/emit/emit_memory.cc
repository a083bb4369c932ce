// SPDX-License-Identifier: Apache-2.0
// Memory, atomics and globals.
//
// An access to its own space is one comparison and a well-predicted branch: offset < valid, where `valid` (the number
// of offsets at which the access fits) is computed once per call. An access that misses traps, or, for flat and
// param(k), goes to a search over all of the instance's space, which gives an address elsewhere or the trap. The
// comparison is exact for every operand, because nothing is added to the offset before it.
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

namespace {

// Returns the offset of the last byte from the operand; nothing when it exceeds 2^64, so that no access can fit.
std::optional<uint64_t> Reach(const ir::Op& op) {
  uint64_t last = op.width - 1u;
  return op.imm <= ~uint64_t{0} - last ? std::optional<uint64_t>(op.imm + last) : std::nullopt;
}

}  // namespace

llvm::Value* FunctionEmitter::Wide(llvm::Value* value) { return b_.CreateZExt(value, b_.getInt64Ty()); }

llvm::Instruction* FunctionEmitter::Tag(llvm::Instruction* access) {
  access->setMetadata(llvm::LLVMContext::MD_tbaa, m_.kernel_tag);
  return access;
}

llvm::Value* FunctionEmitter::ParamValid(uint32_t param, uint64_t reach, bool is_store) {
  llvm::Value*& valid = param_valid_[{2 * param + is_store, reach}];
  if (valid == nullptr) {
    llvm::Type* i64 = entry_.getInt64Ty();
    llvm::Value* bytes = entry_fields_.LoadArgument(i64, param, offsetof(CpuArgument, bytes));
    if (is_store) {
      // No access fits into a buffer that must not be written; the search then reports it.
      llvm::Value* writable = entry_fields_.LoadArgument(i64, param, offsetof(CpuArgument, writable));
      bytes = entry_.CreateSelect(entry_.CreateICmpNE(writable, I64(0)), bytes, I64(0));
    }
    valid = entry_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, bytes, I64(reach));
  }
  return valid;
}

llvm::Value* FunctionEmitter::MemoryValid(uint64_t reach) {
  if (m_.has_grow) {
    llvm::Value* bytes = fields_.Load(b_.getInt64Ty(), offsetof(CpuContext, memory_bytes));
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, bytes, I64(reach));
  }
  llvm::Value*& valid = memory_valid_[reach];
  if (valid == nullptr) {
    llvm::Value* bytes = entry_fields_.LoadInvariant(entry_.getInt64Ty(), offsetof(CpuContext, memory_bytes));
    valid = entry_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, bytes, I64(reach));
  }
  return valid;
}

std::optional<FunctionEmitter::Fast> FunctionEmitter::FastPath(const ir::Op& op, bool is_store) {
  std::optional<uint64_t> reach = Reach(op);
  if (!reach.has_value()) {
    return std::nullopt;
  }
  Fast fast;
  fast.offset = Wide(Operand(op, 0));
  fast.imm = op.imm;
  switch (op.space) {
    case Space::kParam: {
      llvm::Value*& data = param_fields_[{op.space_index, offsetof(CpuArgument, data)}];
      if (data == nullptr) {
        data = entry_fields_.LoadArgument(entry_.getPtrTy(), op.space_index, offsetof(CpuArgument, data));
      }
      fast.data = data;
      fast.valid = ParamValid(op.space_index, *reach, is_store);
      return fast;
    }
    case Space::kGroup: {
      llvm::Type* i64 = b_.getInt64Ty();
      fast.data = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, group_memory));
      // Adds the immediate first: only the sum has to lie above the base.
      fast.offset = b_.CreateSub(FlatAddress(op), fields_.LoadInvariant(i64, offsetof(CpuContext, group_memory_base)));
      fast.imm = 0;
      fast.valid = b_.CreateBinaryIntrinsic(
          llvm::Intrinsic::usub_sat, fields_.Load(i64, offsetof(CpuContext, group_memory_used)), I64(op.width - 1u));
      return fast;
    }
    case Space::kStack: {
      const ir::StackFrame& frame = *m_.source.stack_frame;
      fast.data = StackFrame();
      fast.offset = Wide(b_.CreateSub(Operand(op, 0), llvm::ConstantInt::get(AddressType(), frame.begin - op.imm)));
      fast.imm = 0;
      fast.valid = I64(frame.bytes() - std::min<uint64_t>(op.width - 1u, frame.bytes()));
      return fast;
    }
    case Space::kState:
    case Space::kScratch:
      fast.data = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, state));
      fast.valid = I64(m_.source.state_bytes > *reach ? m_.source.state_bytes - *reach : 0);
      return fast;
    default:
      if (m_.source.memory_bytes_max == 0) {
        return std::nullopt;
      }
      if (memory_ == nullptr) {
        memory_ = entry_fields_.LoadInvariant(entry_.getPtrTy(), offsetof(CpuContext, memory));
      }
      fast.data = memory_;
      fast.valid = MemoryValid(*reach);
      return fast;
  }
}

// RepeatIf does not search: a loop without calls has all registers to itself.
void FunctionEmitter::RepeatIf(llvm::Value* condition) {
  if (repeat_block_ == nullptr) {
    repeat_block_ = NewBlock("repeat");
    llvm::ReturnInst::Create(m_.context(), I32(kRepeatStatus), repeat_block_);
  }
  llvm::BasicBlock* next = NewBlock("next");
  b_.CreateCondBr(condition, repeat_block_, next, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(next);
}

void FunctionEmitter::CheckOrRepeat(ir::OpId id, const Fast& fast) {
  const int32_t index = shared_.of[id.index];
  if (index < 0) {
    return RepeatIf(b_.CreateICmpUGE(fast.offset, fast.valid));
  }
  const pass::SharedCheck& check = shared_.checks[static_cast<size_t>(index)];
  if (check.members[0] != id) {
    return;  // The first member dominates this one, and has checked.
  }
  llvm::Value* limit = nullptr;
  for (const pass::SharedCheck::Bound& bound : check.bounds) {
    llvm::Value* valid = ParamValid(bound.param, bound.reach - 1, /*is_store=*/false);
    limit = limit == nullptr ? valid : entry_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, limit, valid);
  }
  llvm::Value* first = Operand(f_.op(id), 0);
  RepeatIf(b_.CreateICmpUGE(Wide(b_.CreateSub(first, llvm::ConstantInt::get(AddressType(), check.below))), limit));
}

// Returns the stack frame, zeroed, in memory of the function itself.
llvm::Value* FunctionEmitter::StackFrame() {
  if (stack_frame_ == nullptr) {
    const uint64_t bytes = m_.source.stack_frame->bytes();
    llvm::AllocaInst* frame = entry_.CreateAlloca(llvm::ArrayType::get(entry_.getInt64Ty(), bytes / 8));
    entry_.CreateMemSetInline(frame, frame->getAlign(), entry_.getInt8(0), entry_.getInt64(bytes));
    stack_frame_ = frame;
  }
  return stack_frame_;
}

// Returns the address in the instance's space. Base and operand wrap in the address type, the immediate does not; the
// highest address, which is never valid, stands for addresses above 2^64.
llvm::Value* FunctionEmitter::FlatAddress(const ir::Op& op) {
  llvm::Value* address = Operand(op, 0);
  if (op.space == Space::kParam) {
    llvm::Value* base = fields_.LoadArgument(b_.getInt64Ty(), op.space_index, offsetof(CpuArgument, base));
    address = b_.CreateAdd(b_.CreateTrunc(base, AddressType()), address);
  }
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::uadd_sat, Wide(address), I64(op.imm));
}

void FunctionEmitter::MarkDirty(llvm::Value* address, uint32_t width) {
  llvm::Value* bits = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, dirty_bits));
  llvm::Value* granule = b_.CreateLShr(address, 9);
  llvm::LoadInst* word = b_.CreateLoad(b_.getInt64Ty(), b_.CreateGEP(b_.getInt64Ty(), bits, b_.CreateLShr(granule, 6)));
  word->setMetadata(llvm::LLVMContext::MD_tbaa, m_.context_tag);
  llvm::Value* bit = b_.CreateAnd(b_.CreateLShr(word, b_.CreateAnd(granule, I64(63))), I64(1));
  llvm::Value* is_cold = b_.CreateICmpEQ(bit, I64(0));
  if (width > 1) {
    llvm::Value* within = b_.CreateAnd(address, I64(ir::kDirtyGranuleBytes - 1));
    is_cold = b_.CreateOr(is_cold, b_.CreateICmpUGT(within, I64(ir::kDirtyGranuleBytes - width)));
  }
  llvm::BasicBlock* mark = NewBlock("mark");
  llvm::BasicBlock* next = NewBlock("marked");
  b_.CreateCondBr(is_cold, mark, next, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(mark);
  b_.CreateCall(m_.Helper("hpvm.mark"), {context_, address, I64(width)});
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
}

void FunctionEmitter::MarkStateWritten() { fields_.Store(I32(1), offsetof(CpuContext, state_written)); }

template <typename F>
llvm::Value* FunctionEmitter::AccessInside(const ir::Op& op, bool is_store, const Fast& fast, F access) {
  if (is_store && (op.space == Space::kModule || op.space == Space::kFlat)) {
    MarkDirty(b_.CreateAdd(fast.offset, I64(fast.imm)), op.width);
  } else if (is_store && op.space == Space::kState) {
    MarkStateWritten();
  }
  llvm::Value* pointer = b_.CreateGEP(b_.getInt8Ty(), fast.data, fast.offset);
  return access(b_.CreateGEP(b_.getInt8Ty(), pointer, I64(fast.imm)));
}

// Returns the host address that the search finds.
llvm::Value* FunctionEmitter::SearchPointer(const ir::Op& op, bool is_store, llvm::Value* address) {
  llvm::Value* found = b_.CreateCall(m_.Helper(is_store ? "hpvm.resolve.store" : "hpvm.resolve.load"),
                                     {context_, address, I64(op.width)});
  llvm::Value* code = b_.CreateExtractValue(found, 1);
  TrapIf(b_.CreateICmpNE(code, I32(0)), code, op.source, address, I64(op.width));
  return b_.CreateExtractValue(found, 0);
}

// Precedes a search from param(k), in a module whose buffers may have separate address spaces: then an access that
// misses its buffer traps.
void FunctionEmitter::TrapIfSeparate(const ir::Op& op, bool is_store) {
  llvm::Type* i64 = b_.getInt64Ty();
  llvm::Value* count = fields_.LoadInvariant(i64, offsetof(CpuContext, argument_count));
  llvm::Value* code = I32(static_cast<uint32_t>(TrapCode::kOutOfBounds));
  if (std::optional<uint64_t> reach = Reach(op); is_store && reach.has_value()) {
    // The store is inside, and missed because the buffer must not be written.
    llvm::Value* bytes = fields_.LoadArgument(i64, op.space_index, offsetof(CpuArgument, bytes));
    llvm::Value* valid = b_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, bytes, I64(*reach));
    llvm::Value* inside = b_.CreateICmpULT(Wide(Operand(op, 0)), valid);
    code = b_.CreateSelect(inside, I32(static_cast<uint32_t>(TrapCode::kReadOnlyBuffer)), code);
  }
  TrapIf(b_.CreateICmpEQ(count, I64(0)), code, op.source, FlatAddress(op), I64(op.width));
}

template <typename F, typename G>
llvm::Value* FunctionEmitter::Access(const ir::Op& op, bool is_store, F access, G search) {
  std::optional<Fast> fast = FastPath(op, is_store);
  const auto id = static_cast<size_t>(&op - f_.ops.data());
  if (fast.has_value() && op.space == Space::kParam && proven_ != nullptr && (*proven_)[id]) {
    // The offset is below 2^31, so either extension gives the same value.
    llvm::Value* offset = Operand(op, 0);
    if (m_.machine.audits_proofs) {
      TrapIf(b_.CreateICmpUGE(fast->offset, fast->valid), TrapCode::kWrongProof, op.source, FlatAddress(op),
             I64(op.width));
    }
    fast->offset = b_.CreateZExt(offset, b_.getInt64Ty(), "", /*IsNonNeg=*/!m_.source.is_memory64);
    return AccessInside(op, is_store, *fast, access);
  }
  if (op.space == Space::kStack && m_.is_inside_stack[id]) {
    // Memory safety does not depend on the range analysis, because the offset is also clamped.
    llvm::Value* last = b_.CreateSub(fast->valid, I64(1));
    fast->offset = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, fast->offset, last);
    return AccessInside(op, is_store, *fast, access);
  }
  if (op.space != Space::kFlat && op.space != Space::kParam && op.space != Space::kGroup) {
    llvm::Value* misses = fast.has_value() ? b_.CreateICmpUGE(fast->offset, fast->valid) : b_.getTrue();
    if (op.space == Space::kState || op.space == Space::kScratch) {
      TrapIf(misses, TrapCode::kOutOfBounds, op.source);  // They have no flat address.
    } else {
      TrapIf(misses, TrapCode::kOutOfBounds, op.source, FlatAddress(op), I64(op.width));
    }
    if (!fast.has_value()) {
      fast = Fast{I64(0), 0, llvm::PoisonValue::get(b_.getPtrTy()), nullptr};  // Never reached.
    }
    return AccessInside(op, is_store, *fast, access);
  }
  if (fast.has_value() && !is_store && repeatable_ != nullptr && (*repeatable_)[id]) {
    CheckOrRepeat(ir::OpId(id), *fast);
    return AccessInside(op, is_store, *fast, access);
  }
  llvm::BasicBlock* done = NewBlock("accessed");
  llvm::BasicBlock* search_block = NewBlock("search");
  llvm::BasicBlock* fast_end = nullptr;
  llvm::Value* fast_value = nullptr;
  if (fast.has_value()) {
    llvm::BasicBlock* inside = NewBlock("inside");
    b_.CreateCondBr(b_.CreateICmpULT(fast->offset, fast->valid), inside, search_block, Likely());
    b_.SetInsertPoint(inside);
    fast_value = AccessInside(op, is_store, *fast, access);
    fast_end = b_.GetInsertBlock();
    b_.CreateBr(done);
  } else {
    b_.CreateBr(search_block);
  }
  b_.SetInsertPoint(search_block);
  if (op.space == Space::kParam && m_.source.has_separate_buffers) {
    TrapIfSeparate(op, is_store);
  }
  llvm::Value* address = FlatAddress(op);
  if (op.space == Space::kParam && m_.source.stack_frame.has_value()) {
    TrapIf(m_.IsOnStack(b_, op, address), TrapCode::kOutOfBounds, op.source, address, I64(op.width));
  }
  llvm::Value* slow_value = search(address);
  llvm::BasicBlock* slow_end = b_.GetInsertBlock();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  if (fast_end == nullptr || slow_value == nullptr) {
    return slow_value;
  }
  llvm::PHINode* value = b_.CreatePHI(slow_value->getType(), 2);
  value->addIncoming(fast_value, fast_end);
  value->addIncoming(slow_value, slow_end);
  return value;
}

Status FunctionEmitter::EmitMemory(const ir::Op& op) {
  if (op.space == Space::kPrivate) {
    return Unimplemented("The CPU back end has no private memory yet (function \"" + f_.name + "\").");
  }
  switch (op.code) {
    case Opcode::kLoad:
      EmitLoad(op);
      break;
    case Opcode::kStore:
      EmitStore(op);
      break;
    case Opcode::kLoad128:
      EmitLoad128(op);
      break;
    case Opcode::kStore128:
      EmitStore128(op);
      break;
    case Opcode::kMemorySize: {
      llvm::Value* bytes = fields_.Load(b_.getInt64Ty(), offsetof(CpuContext, memory_bytes));
      SetResult(op, b_.CreateTrunc(b_.CreateLShr(bytes, 16), m_.TypeOf(f_.type_of(op.first_result))));
      break;
    }
    case Opcode::kMemoryGrow:
      EmitMemoryGrow(op);
      break;
    default:
      EmitBulk(op);
  }
  return absl::OkStatus();
}

void FunctionEmitter::EmitLoad(const ir::Op& op) {
  llvm::Type* type = m_.TypeOf(op.type);
  llvm::Type* stored = op.width == ir::Bytes(op.type) ? type : b_.getIntNTy(8u * op.width);
  auto access = [&](llvm::Value* pointer) -> llvm::Value* {
    return Tag(b_.CreateAlignedLoad(stored, pointer, llvm::Align(1)));
  };
  auto search = [&](llvm::Value* address) -> llvm::Value* {
    llvm::Value* found = b_.CreateCall(m_.Helper("hpvm.load"), {context_, address, I64(op.width)});
    llvm::Value* code = b_.CreateExtractValue(found, 1);
    TrapIf(b_.CreateICmpNE(code, I32(0)), code, op.source, address, I64(op.width));
    return b_.CreateBitCast(b_.CreateTrunc(b_.CreateExtractValue(found, 0), b_.getIntNTy(8u * op.width)), stored);
  };
  llvm::Value* value = Access(op, false, access, search);
  if (stored != type) {
    value = op.sign ? b_.CreateSExt(value, type) : b_.CreateZExt(value, type);
  }
  SetResult(op, Once(op.first_result, value));
}

void FunctionEmitter::EmitStore(const ir::Op& op) {
  llvm::Value* value = Operand(op, 1);
  if (op.width != ir::Bytes(op.type)) {
    value = b_.CreateTrunc(value, b_.getIntNTy(8u * op.width));
  }
  StoreValue(op, value, [&](llvm::Value* address) {
    llvm::Value* bits = Wide(b_.CreateBitCast(value, b_.getIntNTy(8u * op.width)));
    return b_.CreateCall(m_.Helper("hpvm.store"), {context_, address, I64(op.width), bits});
  });
}

// `search` returns the code of a trap, or 0.
template <typename F>
void FunctionEmitter::StoreValue(const ir::Op& op, llvm::Value* value, F search) {
  auto access = [&](llvm::Value* pointer) -> llvm::Value* {
    Tag(b_.CreateAlignedStore(value, pointer, llvm::Align(1)));
    return nullptr;
  };
  Access(op, true, access, [&](llvm::Value* address) -> llvm::Value* {
    llvm::Value* code = search(address);
    TrapIf(b_.CreateICmpNE(code, I32(0)), code, op.source, address, I64(op.width));
    return nullptr;
  });
}

// Loads four adjacent i32 as one vector.
void FunctionEmitter::EmitLoad128(const ir::Op& op) {
  auto* type = llvm::FixedVectorType::get(b_.getInt32Ty(), 4);
  auto access = [&](llvm::Value* pointer) -> llvm::Value* {
    return Tag(b_.CreateAlignedLoad(type, pointer, llvm::Align(1)));
  };
  auto search = [&](llvm::Value* address) -> llvm::Value* {
    llvm::Value* found = b_.CreateCall(m_.Helper("hpvm.load128"), {context_, address});
    llvm::Value* code = b_.CreateExtractValue(found, 2);
    TrapIf(b_.CreateICmpNE(code, I32(0)), code, op.source, address, I64(op.width));
    llvm::Value* halves = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getInt64Ty(), 2));
    for (unsigned i = 0; i < 2; ++i) {
      halves = b_.CreateInsertElement(halves, b_.CreateExtractValue(found, i), uint64_t{i});
    }
    return b_.CreateBitCast(halves, type);
  };
  llvm::Value* value = Access(op, false, access, search);
  for (uint32_t i = 0; i < 4; ++i) {
    const ir::ValueId result(op.first_result.index + i);
    values_[result.index] = Once(result, b_.CreateExtractElement(value, uint64_t{i}));
  }
}

void FunctionEmitter::EmitStore128(const ir::Op& op) {
  llvm::Value* value = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getInt32Ty(), 4));
  for (uint32_t i = 0; i < 4; ++i) {
    value = b_.CreateInsertElement(value, Operand(op, i + 1), uint64_t{i});
  }
  StoreValue(op, value, [&](llvm::Value* address) {
    llvm::Value* halves = b_.CreateBitCast(value, llvm::FixedVectorType::get(b_.getInt64Ty(), 2));
    return b_.CreateCall(m_.Helper("hpvm.store128"), {context_, address, b_.CreateExtractElement(halves, uint64_t{0}),
                                                      b_.CreateExtractElement(halves, uint64_t{1})});
  });
}

void FunctionEmitter::EmitMemoryGrow(const ir::Op& op) {
  llvm::Type* i64 = b_.getInt64Ty();
  llvm::Type* type = m_.TypeOf(f_.type_of(op.first_result));
  llvm::Value* bytes = fields_.Load(i64, offsetof(CpuContext, memory_bytes));
  llvm::Value* room = b_.CreateSub(fields_.LoadInvariant(i64, offsetof(CpuContext, memory_bytes_max)), bytes);
  llvm::Value* pages = Wide(Operand(op, 0));
  llvm::Value* fits = b_.CreateICmpULE(pages, b_.CreateLShr(room, 16));
  llvm::Value* grown = b_.CreateAdd(bytes, b_.CreateShl(pages, 16));
  fields_.Store(b_.CreateSelect(fits, grown, bytes), offsetof(CpuContext, memory_bytes));
  SetResult(op, b_.CreateSelect(fits, b_.CreateTrunc(b_.CreateLShr(bytes, 16), type),
                                llvm::ConstantInt::getSigned(type, -1)));
}

// memory_copy, memory_fill and memory_init; the helper records a trap itself.
void FunctionEmitter::EmitBulk(const ir::Op& op) {
  Values arguments = {context_, Wide(Operand(op, 0))};
  const char* helper = "hpvm.fill";
  if (op.code == Opcode::kMemoryFill) {
    arguments.push_back(Operand(op, 1));
  } else if (op.code == Opcode::kMemoryCopy) {
    helper = "hpvm.copy";
    arguments.push_back(Wide(Operand(op, 1)));
  } else {
    helper = "hpvm.init";
    auto segment = static_cast<uint32_t>(op.imm);
    arguments.push_back(m_.Segment(segment));
    arguments.push_back(I64(m_.source.passive_segments[segment].size()));
    arguments.push_back(Wide(Operand(op, 1)));
  }
  arguments.insert(arguments.end(), {Wide(Operand(op, 2)), I32(written_in_), I32(op.source)});
  ReturnIfFailed(b_.CreateCall(m_.Helper(helper), arguments));
}

llvm::Constant* ModuleEmitter::Segment(uint32_t index) {
  llvm::Constant*& segment = segments[index];
  if (segment == nullptr) {
    llvm::Constant* bytes = llvm::ConstantDataArray::get(context(), llvm::ArrayRef(source.passive_segments[index]));
    segment = new llvm::GlobalVariable(*module, bytes->getType(), /*isConstant=*/true,
                                       llvm::GlobalValue::InternalLinkage, bytes, "segment" + std::to_string(index));
  }
  return segment;
}

Status FunctionEmitter::EmitAtomic(const ir::Op& op) {
  if (op.space == Space::kPrivate) {
    return Unimplemented("The CPU back end has no private memory yet (function \"" + f_.name + "\").");
  }
  if (op.width > 1) {
    // Every base is aligned, so the operand and the immediate determine the alignment.
    llvm::Value* address = FlatAddress(op);
    llvm::Value* low = b_.CreateAnd(b_.CreateAdd(Wide(Operand(op, 0)), I64(op.imm)), I64(op.width - 1u));
    TrapIf(b_.CreateICmpNE(low, I64(0)), TrapCode::kMisalignedAtomic, op.source, address, I64(op.width));
  }
  bool is_store = op.code != Opcode::kAtomicLoad;
  const Values values = Operands(op, 1);
  auto access = [&](llvm::Value* pointer) { return EmitAtomicAt(m_, b_, op, pointer, values); };
  llvm::Value* value =
      Access(op, is_store, access, [&](llvm::Value* address) { return access(SearchPointer(op, is_store, address)); });
  if (op.result_count != 0) {
    SetResult(op, value);
  }
  return absl::OkStatus();
}

void FunctionEmitter::EmitGlobal(const ir::Op& op) {
  llvm::Value* globals = fields_.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, globals));
  llvm::Value* slot = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), globals, op.imm);
  llvm::Instruction* access = nullptr;
  if (op.code == Opcode::kGlobalGet) {
    access = b_.CreateLoad(m_.TypeOf(op.type), slot);
    SetResult(op, access);
  } else {
    access = b_.CreateStore(Operand(op, 0), slot);
    if (m_.marks_globals) {
      MarkStateWritten();
    }
  }
  access->setMetadata(llvm::LLVMContext::MD_tbaa, m_.context_tag);
}

}  // namespace hpvm::cpu
