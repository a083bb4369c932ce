// SPDX-License-Identifier: Apache-2.0
// Functions, regions and traps. Arguments and results of structured operations become phis; an unreachable merge
// yields poison.
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/ir/cpu_abi.h"
#include "compiler/ir/walk.h"

namespace hpvm::cpu {

FunctionEmitter::FunctionEmitter(ModuleEmitter& m, uint32_t index, llvm::Function* into,
                                 const std::vector<bool>* proven, const std::vector<bool>* repeatable)
    : m_(m),
      index_(index),
      f_(m.source.functions[index]),
      function_(into != nullptr ? into : m.functions[index]),
      proven_(proven),
      repeatable_(repeatable),
      b_(m.context()),
      entry_(m.context()),
      fields_(m, b_, function_->getArg(0), function_->getArg(1)),
      entry_fields_(m, entry_, function_->getArg(0), function_->getArg(1)),
      context_(function_->getArg(0)),
      arguments_(function_->getArg(1)),
      values_(f_.values.size(), nullptr),
      open_(f_.ops.size()) {
  if (repeatable_ != nullptr) {
    std::vector<bool> is_asked = *repeatable_;
    for (size_t i = 0; proven_ != nullptr && i < is_asked.size(); ++i) {
      is_asked[i] = is_asked[i] && !(*proven_)[i];
    }
    shared_ = pass::FindSharedChecks(m_.source, is_asked);
  }
  for (unsigned d = 0; d < 3; ++d) {
    id_[d] = function_->getArg(kFirstId + d);
  }
}

Status FunctionEmitter::Emit() {
  EmitPrologue();
  HPVMD_RETURN_IF_ERROR(EmitRegion(f_.body));
  EmitEpilogues();
  return absl::OkStatus();
}

void FunctionEmitter::EmitPrologue() {
  entry_.SetInsertPoint(NewBlock("entry"));
  body_block_ = NewBlock("body");
  b_.SetInsertPoint(body_block_);
  const ir::Region& body = f_.region(f_.body);
  for (uint32_t i = 0; i < body.param_count; ++i) {
    values_[body.first_param.index + i] = function_->getArg(kFirstParam + i);
  }
  llvm::Value* lacks_stack = fields_.LacksStack(f_);
  if (lacks_stack == nullptr) {
    return;
  }
  TrapIf(lacks_stack, TrapCode::kStackOverflow, 0);
  // Calls alone can run practically forever in bounded depth, without any loop.
  TrapIf(fields_.IsStopped(), TrapCode::kStopped, 0);
}

void FunctionEmitter::EmitEpilogues() {
  llvm::Type* result = function_->getReturnType();
  auto return_status = [&](llvm::Value* status) {
    b_.CreateRet(result->isStructTy() ? b_.CreateInsertValue(llvm::PoisonValue::get(result), status, 0) : status);
  };
  if (failed_block_ != nullptr) {
    b_.SetInsertPoint(failed_block_);
    return_status(I32(1));
  }
  if (trap_block_ != nullptr) {
    b_.SetInsertPoint(trap_block_);
    auto count = static_cast<unsigned>(trap_edges_.size());
    llvm::PHINode* code = b_.CreatePHI(b_.getInt32Ty(), count);
    llvm::PHINode* function = b_.CreatePHI(b_.getInt32Ty(), count);
    llvm::PHINode* source = b_.CreatePHI(b_.getInt32Ty(), count);
    llvm::PHINode* address = b_.CreatePHI(b_.getInt64Ty(), count);
    llvm::PHINode* bytes = b_.CreatePHI(b_.getInt64Ty(), count);
    for (const TrapEdge& edge : trap_edges_) {
      code->addIncoming(edge.code, edge.from);
      function->addIncoming(I32(edge.function), edge.from);
      source->addIncoming(I32(edge.source), edge.from);
      address->addIncoming(edge.address != nullptr ? edge.address : I64(0), edge.from);
      bytes->addIncoming(edge.bytes != nullptr ? edge.bytes : I64(0), edge.from);
    }
    b_.CreateCall(m_.Helper("hpvm.record"), {context_, code, function, source, address, bytes});
    return_status(I32(1));
  }
  entry_.CreateBr(body_block_);
}

Status FunctionEmitter::EmitRegion(ir::RegionId region) {
  for (ir::OpId id : f_.region(region).ops) {
    HPVMD_RETURN_IF_ERROR(EmitOp(f_.op(id), id));
  }
  return absl::OkStatus();
}

Status FunctionEmitter::EmitOp(const ir::Op& op, ir::OpId id) {
  written_in_ = op.origin != 0 ? op.origin - 1 : m_.WrittenIn(index_);
  if (ArithEmitter::Handles(op)) {
    b_.setFastMathFlags(m_.FastMathOf(written_in_));
    SetResult(op, arith_.Emit(op, f_.type_of(op.first_result), Operands(op)));
    return absl::OkStatus();
  }
  switch (ir::Info(op.code).family) {
    case ir::Family::kMemory:
      return EmitMemory(op);
    case ir::Family::kAtomic:
      return EmitAtomic(op);
    case ir::Family::kGlobal:
      EmitGlobal(op);
      break;
    case ir::Family::kCall:
      op.code == Opcode::kPrint ? EmitPrint(op) : EmitCall(op);
      break;
    case ir::Family::kQuery:
      EmitQuery(op);
      break;
    case ir::Family::kSync:
      EmitSync(op);
      break;
    default:
      return EmitControl(op, id);
  }
  return absl::OkStatus();
}

Status FunctionEmitter::EmitControl(const ir::Op& op, ir::OpId id) {
  switch (op.code) {
    case Opcode::kBlock:
      return EmitBlock(op, id);
    case Opcode::kLoop:
      return EmitLoop(op, id);
    case Opcode::kIf:
      return EmitIf(op, id);
    case Opcode::kBr:
    case Opcode::kContinue:
      Jump(f_.targets_of(op)[0], Operands(op), op.source);
      return absl::OkStatus();
    case Opcode::kBrTable:
      EmitBrTable(op);
      return absl::OkStatus();
    case Opcode::kReturn:
      EmitReturn(op);
      return absl::OkStatus();
    case Opcode::kTrap:
      TrapNow(I32(static_cast<uint32_t>(op.imm)), op.source, nullptr, nullptr);
      return absl::OkStatus();
    default:
      return Internal("The operation \"" + std::string(ir::Info(op.code).text) + "\" is not a control operation.");
  }
}

Status FunctionEmitter::EmitBlock(const ir::Op& op, ir::OpId id) {
  open_[id.index].exit = NewBlock("exit");
  const ir::Region& body = f_.region(op.body);
  for (uint32_t i = 0; i < body.param_count; ++i) {
    values_[body.first_param.index + i] = Operand(op, i);
  }
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.body));
  Close(op, open_[id.index]);
  return absl::OkStatus();
}

Status FunctionEmitter::EmitLoop(const ir::Op& op, ir::OpId id) {
  Open& open = open_[id.index];
  open.exit = NewBlock("exit");
  open.header = NewBlock("loop");
  llvm::BasicBlock* before = b_.GetInsertBlock();
  b_.CreateBr(open.header);
  b_.SetInsertPoint(open.header);
  const ir::Region& body = f_.region(op.body);
  for (uint32_t i = 0; i < body.param_count; ++i) {
    llvm::PHINode* phi = b_.CreatePHI(Operand(op, i)->getType(), 2);
    phi->addIncoming(Operand(op, i), before);
    open.header_phis.push_back(phi);
    values_[body.first_param.index + i] = phi;
  }
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.body));
  Close(op, open_[id.index]);
  return absl::OkStatus();
}

Status FunctionEmitter::EmitIf(const ir::Op& op, ir::OpId id) {
  open_[id.index].exit = NewBlock("endif");
  llvm::BasicBlock* then_block = NewBlock("then");
  llvm::BasicBlock* else_block = NewBlock("else");
  b_.CreateCondBr(b_.CreateICmpNE(Operand(op, 0), I32(0)), then_block, else_block);
  b_.SetInsertPoint(then_block);
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.body));
  b_.SetInsertPoint(else_block);
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.otherwise));
  Close(op, open_[id.index]);
  return absl::OkStatus();
}

// Continues after the operation, with phis over the edges that left it.
void FunctionEmitter::Close(const ir::Op& op, Open& open) {
  b_.SetInsertPoint(open.exit);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    ir::ValueId result(op.first_result.index + i);
    llvm::Type* type = m_.TypeOf(f_.type_of(result));
    if (open.leaves.empty()) {
      values_[result.index] = llvm::PoisonValue::get(type);
      continue;
    }
    llvm::PHINode* phi = b_.CreatePHI(type, static_cast<unsigned>(open.leaves.size()));
    for (const auto& [from, values] : open.leaves) {
      phi->addIncoming(values[i], from);
    }
    values_[result.index] = phi;
  }
  open = Open{};  // Nothing can leave it any more; frees memory, as nesting may be deep.
}

void FunctionEmitter::Jump(const ir::Target& target, const Values& values, uint32_t source) {
  if (target.is_continue) {
    TrapIf(fields_.IsStopped(), TrapCode::kStopped, source);
    Open& open = open_[target.op.index];
    for (size_t i = 0; i < open.header_phis.size(); ++i) {
      open.header_phis[i]->addIncoming(values[i], b_.GetInsertBlock());
    }
    b_.CreateBr(open.header);
    return;
  }
  Open& open = open_[target.op.index];
  open.leaves.emplace_back(b_.GetInsertBlock(), values);
  b_.CreateBr(open.exit);
}

// Emits one small block per distinct target, so that every phi has one edge from it however many cases lead there.
void FunctionEmitter::EmitBrTable(const ir::Op& op) {
  std::span<const ir::Target> targets = f_.targets_of(op);
  Values values = Operands(op, 1);
  std::map<std::pair<uint32_t, bool>, llvm::BasicBlock*> blocks;
  auto block_of = [&](const ir::Target& target) {
    llvm::BasicBlock*& block = blocks[{target.op.index, target.is_continue}];
    if (block == nullptr) {
      block = NewBlock("case");
    }
    return block;
  };
  auto count = static_cast<unsigned>(targets.size() - 1);
  llvm::SwitchInst* branch = b_.CreateSwitch(Operand(op, 0), block_of(targets[count]), count);
  for (unsigned i = 0; i < count; ++i) {
    branch->addCase(b_.getInt32(i), block_of(targets[i]));
  }
  for (const auto& [target, block] : blocks) {
    b_.SetInsertPoint(block);
    Jump({ir::OpId(target.first), target.second}, values, op.source);
  }
}

void FunctionEmitter::EmitReturn(const ir::Op& op) {
  llvm::Type* type = function_->getReturnType();
  if (!type->isStructTy()) {
    b_.CreateRet(I32(0));
    return;
  }
  llvm::Value* result = b_.CreateInsertValue(llvm::PoisonValue::get(type), I32(0), 0);
  for (uint32_t i = 0; i < op.operand_count; ++i) {
    result = b_.CreateInsertValue(result, Operand(op, i), i + 1);
  }
  b_.CreateRet(result);
}

void FunctionEmitter::NoteTrap(llvm::Value* code, uint32_t source, llvm::Value* address, llvm::Value* bytes) {
  if (trap_block_ == nullptr) {
    trap_block_ = NewBlock("trap");
  }
  trap_edges_.push_back({b_.GetInsertBlock(), written_in_, code, source, address, bytes});
}

void FunctionEmitter::TrapNow(llvm::Value* code, uint32_t source, llvm::Value* address, llvm::Value* bytes) {
  NoteTrap(code, source, address, bytes);
  b_.CreateBr(trap_block_);
}

void FunctionEmitter::TrapIf(llvm::Value* condition, TrapCode code, uint32_t source, llvm::Value* address,
                             llvm::Value* bytes) {
  TrapIf(condition, I32(static_cast<uint32_t>(code)), source, address, bytes);
}

void FunctionEmitter::TrapIf(llvm::Value* condition, llvm::Value* code, uint32_t source, llvm::Value* address,
                             llvm::Value* bytes) {
  NoteTrap(code, source, address, bytes);
  llvm::BasicBlock* next = NewBlock("next");
  b_.CreateCondBr(condition, trap_block_, next, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(next);
}

llvm::BasicBlock* FunctionEmitter::NewBlock(const char* name) {
  return llvm::BasicBlock::Create(m_.context(), name, function_);
}

llvm::MDNode* FunctionEmitter::Likely() { return llvm::MDBuilder(m_.context()).createLikelyBranchWeights(); }

llvm::Value* FunctionEmitter::Operand(const ir::Op& op, uint32_t index) const {
  return values_[f_.operands[op.first_operand + index].index];
}

FunctionEmitter::Values FunctionEmitter::Operands(const ir::Op& op, uint32_t first) const {
  Values values;
  for (uint32_t i = first; i < op.operand_count; ++i) {
    values.push_back(Operand(op, i));
  }
  return values;
}

void FunctionEmitter::SetResult(const ir::Op& op, llvm::Value* value) {
  HPVMD_CHECK(op.result_count == 1 && value != nullptr);
  values_[op.first_result.index] = value;
}

}  // namespace hpvm::cpu
