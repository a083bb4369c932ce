// SPDX-License-Identifier: Apache-2.0
// Calls, one lane after the other; queries of the launch; globals.
//
// Most calls have been inlined (compiler/pass/inline_calls.h). The remaining ones, recursion and rarely reached code,
// call the scalar function for each active lane.
#include "compiler/back/llvm/gang/gang.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

namespace {

bool IsVector(const llvm::Value* value) { return value->getType()->isVectorTy(); }

}  // namespace

llvm::Value* GangOps::RowId(unsigned row) {
  llvm::Value* y = tile_.function->getArg(kFirstId + 1);
  return row == kAllRows || row == 0 ? y : b_.CreateAdd(y, tile_.I64(row));
}

// Every row calls separately, even for results that rows share, because a callee may trap in one of them.
void GangOps::EmitCall(const ir::Op& op) {
  llvm::SmallVector<Slots, 1> results;
  for (uint32_t i = 0; i < op.result_count; ++i) {
    results.push_back(tile_.NewSlots(ir::ValueId(op.first_result.index + i)));
  }
  for (unsigned row = 0; row < tile_.rows(); ++row) {
    for (unsigned column = 0; column < tile_.columns(); ++column) {
      EmitCalls(op, row, column, results);
    }
  }
  for (uint32_t i = 0; i < op.result_count; ++i) {
    tile_.Set(ir::ValueId(op.first_result.index + i), tile_.LoadFrom(results[i]));
  }
}

// The log keeps the lines of each instance apart (backends/contract/launch_log.h), so lanes print in place.
void GangOps::EmitPrint(const ir::Op& op) {
  for (unsigned row = 0; row < tile_.rows(); ++row) {
    for (unsigned column = 0; column < tile_.columns(); ++column) {
      const LaneValues operands = SpillOperands(op, row, column);
      masks_.ForEachLane(masks_.PartMask(row, column), [&](llvm::Value* lane) {
        llvm::SmallVector<llvm::Value*, 12> arguments = {
            tile_.function->getArg(0), b_.CreateAdd(tile_.function->getArg(kFirstId), AlongX(lane, column)), RowId(row),
            tile_.function->getArg(kFirstId + 2), tile_.I32(static_cast<uint32_t>(op.imm))};
        for (uint32_t i = 0; i < op.operand_count; ++i) {
          arguments.push_back(Bits(b_, OfLane(op, i, operands, lane)));
        }
        b_.CreateCall(m_.Printer(op.operand_count), arguments)->setCallingConv(llvm::CallingConv::Fast);
      });
    }
  }
}

llvm::Value* GangOps::AlongX(llvm::Value* lane, unsigned column) {
  return b_.CreateAdd(b_.CreateZExt(lane, b_.getInt64Ty()), tile_.I64(uint64_t{column} * tile_.lanes()));
}

GangOps::LaneValues GangOps::SpillOperands(const ir::Op& op, unsigned row, unsigned column) {
  LaneValues operands;
  for (uint32_t i = 0; i < op.operand_count; ++i) {
    const pass::Layout& layout = tile_.LayoutOf(tile_.OperandId(op, i));
    if (layout.kind == pass::Layout::Kind::kUniform) {
      operands.push_back(tile_.Operand(op, i, row));
      continue;
    }
    llvm::Value* vector = tile_.Operand(op, i, row, column);
    operands.push_back(tile_.entry.CreateAlloca(vector->getType()));
    b_.CreateStore(vector, operands.back());
  }
  return operands;
}

llvm::Value* GangOps::OfLane(const ir::Op& op, uint32_t index, const LaneValues& operands, llvm::Value* lane) {
  const ir::ValueId id = tile_.OperandId(op, index);
  if (tile_.LayoutOf(id).kind == pass::Layout::Kind::kUniform) {
    return operands[index];
  }
  llvm::Type* type = tile_.TypeOf(id);
  return b_.CreateLoad(type, b_.CreateInBoundsGEP(type, operands[index], lane));
}

void GangOps::EmitCalls(const ir::Op& op, unsigned row, unsigned column, llvm::ArrayRef<Slots> results) {
  const LaneValues operands = SpillOperands(op, row, column);
  masks_.ForEachLane(masks_.PartMask(row, column),
                     [&](llvm::Value* lane) { EmitLaneCall(op, row, column, lane, operands, results); });
}

void GangOps::EmitLaneCall(const ir::Op& op, unsigned row, unsigned column, llvm::Value* lane,
                           const LaneValues& operands, llvm::ArrayRef<Slots> results) {
  const auto index = static_cast<uint32_t>(op.imm);
  llvm::Value* along_x = AlongX(lane, column);
  llvm::SmallVector<llvm::Value*, 12> arguments = {tile_.function->getArg(0), tile_.function->getArg(1),
                                                   b_.CreateAdd(tile_.function->getArg(kFirstId), along_x), RowId(row),
                                                   tile_.function->getArg(kFirstId + 2)};
  for (uint32_t i = 0; i < op.operand_count; ++i) {
    arguments.push_back(OfLane(op, i, operands, lane));
  }
  llvm::Function* callee = op.code == Opcode::kCall ? m_.functions[index] : m_.ReferenceCaller(index);
  llvm::CallInst* call = b_.CreateCall(callee, arguments);
  call->setCallingConv(llvm::CallingConv::Fast);
  llvm::Value* status = call->getType()->isStructTy() ? b_.CreateExtractValue(call, 0) : call;
  if (op.code == Opcode::kCallRef) {
    traps_.TrapLaneIf(row, column, lane, b_.CreateICmpUGE(status, tile_.I32(kTrapStatus)),
                      b_.CreateSub(status, tile_.I32(kTrapStatus)), op.source);
  }
  traps_.TrapLaneIf(row, column, lane, b_.CreateICmpNE(status, tile_.I32(0)), nullptr, op.source);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    const ir::ValueId id(op.first_result.index + i);
    const pass::Layout& layout = tile_.LayoutOf(id);
    llvm::Value* value = b_.CreateExtractValue(call, i + 1);
    const unsigned r = layout.by_row ? row : 0;
    if (layout.kind == pass::Layout::Kind::kVarying) {
      llvm::AllocaInst* slot = results[i][r * tile_.columns() + column];
      b_.CreateStore(value, b_.CreateInBoundsGEP(tile_.TypeOf(id), slot, lane));
      continue;
    }
    if (layout.step != 0) {  // Relative to the row's first lane, whichever lane this is.
      llvm::Value* place = b_.CreateZExtOrTrunc(along_x, value->getType());
      llvm::APInt step = llvm::APInt(64, layout.step).trunc(value->getType()->getIntegerBitWidth());
      value = b_.CreateSub(value, b_.CreateMul(place, llvm::ConstantInt::get(value->getType(), step)));
    }
    b_.CreateStore(value, results[i][r]);
  }
}

Status GangOps::EmitQuery(const ir::Op& op) {
  const pass::Layout& layout = tile_.LayoutOf(op.first_result);
  const bool is_scalar = layout.kind != pass::Layout::Kind::kVarying;
  llvm::Type* type = is_scalar ? tile_.TypeOf(op.first_result) : tile_.VectorOf(tile_.TypeOf(op.first_result));
  Tiled value;
  for (unsigned r = 0; r < tile_.RowsOf(layout); ++r) {
    const unsigned row = layout.by_row ? r : kAllRows;
    for (unsigned column = 0; column < (is_scalar ? 1 : tile_.columns()); ++column) {
      llvm::Value* operand = is_scalar ? tile_.Operand(op, 0, row) : tile_.Operand(op, 0, row, column);
      llvm::Value* all =
          op.code == Opcode::kBufferSize ? tile_.fields.BufferSize(operand) : Query(op, operand, row, column);
      value.push_back(b_.CreateTrunc(all, type));
    }
  }
  tile_.Set(op.first_result, std::move(value));
  return absl::OkStatus();
}

// Returns an i64 for `dimension`, an i32, or a vector of them for a vector of dimensions.
llvm::Value* GangOps::Query(const ir::Op& op, llvm::Value* dimension, unsigned row, unsigned column) {
  const bool is_count = op.code == Opcode::kInstanceCount || op.code == Opcode::kGroupSize;
  auto like = [&](llvm::Value* scalar) { return IsVector(dimension) ? tile_.Splat(scalar) : scalar; };
  llvm::Value* result = like(tile_.I64(is_count ? 1 : 0));
  const llvm::ConstantInt* known = nullptr;
  if (auto* constant = llvm::dyn_cast<llvm::Constant>(dimension)) {
    known = llvm::dyn_cast_or_null<llvm::ConstantInt>(IsVector(dimension) ? constant->getSplatValue() : constant);
  }
  for (unsigned d = 0; d < 3; ++d) {
    if (known == nullptr) {
      llvm::Value* value = QueryOf(op, d, row, column, IsVector(dimension));
      result = b_.CreateSelect(b_.CreateICmpEQ(dimension, like(tile_.I32(d))), value, result);
    } else if (known->getZExtValue() == d) {
      result = QueryOf(op, d, row, column, IsVector(dimension));
    }
  }
  return result;
}

llvm::Value* GangOps::QueryOf(const ir::Op& op, unsigned dimension, unsigned row, unsigned column, bool is_vector) {
  auto like = [&](llvm::Value* scalar) { return is_vector ? tile_.Splat(scalar) : scalar; };
  auto field = [&](size_t offset) { return tile_.fields.LoadInvariant(b_.getInt64Ty(), offset + 8 * dimension); };
  auto id = [&]() -> llvm::Value* {
    llvm::Value* first = dimension == 1 ? RowId(row) : tile_.function->getArg(kFirstId + dimension);
    return is_vector ? tile_.Spread(first, dimension == 0 ? 1 : 0, column) : first;
  };
  switch (op.code) {
    case Opcode::kInstanceId:
      return id();
    case Opcode::kInstanceCount:
      return like(field(offsetof(CpuContext, extent)));
    case Opcode::kGroupSize:
      return like(field(offsetof(CpuContext, group)));
    default:
      break;
  }
  // A group is never empty; the maximum keeps the division from faulting whatever the context contains.
  llvm::Value* group =
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, field(offsetof(CpuContext, group)), tile_.I64(1));
  if (!is_vector || dimension != 0) {
    llvm::Value* first = dimension == 1 ? RowId(row) : tile_.function->getArg(kFirstId + dimension);
    return like(op.code == Opcode::kGroupId ? b_.CreateUDiv(first, group) : b_.CreateURem(first, group));
  }
  ir::Op divide;
  divide.code = op.code == Opcode::kGroupId ? Opcode::kDivU : Opcode::kRemU;
  divide.type = ir::Type::kI64;
  divide.source = op.source;
  llvm::Value* const operands[] = {id(), like(group)};
  return EmitVector(divide, ir::Type::kI64, operands, row, column);
}

// No kernel that runs in lockstep writes a global, so all instances see the launch's initial values.
Status GangOps::EmitGlobal(const ir::Op& op) {
  if (op.code != Opcode::kGlobalGet) {
    return Internal("A kernel that writes globals cannot run in lockstep.");
  }
  llvm::Value* globals = tile_.fields.LoadInvariant(b_.getPtrTy(), offsetof(CpuContext, globals));
  llvm::Value* slot = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), globals, op.imm);
  llvm::LoadInst* load = b_.CreateLoad(m_.TypeOf(op.type), slot);
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(m_.context(), {}));
  const pass::Layout& layout = tile_.LayoutOf(op.first_result);
  Tiled value(tile_.RowsOf(layout) * (layout.kind == pass::Layout::Kind::kVarying ? tile_.columns() : 1),
              layout.kind == pass::Layout::Kind::kVarying ? tile_.Splat(load) : load);
  tile_.Set(op.first_result, std::move(value));
  return absl::OkStatus();
}

}  // namespace hpvm::cpu
