// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "base/limits.h"
#include "compiler/front/wasm/delegate.h"

namespace hpvm::wasm {
namespace {

using wabt::Result;

uint32_t Alignment(wabt::Address align_log2) { return align_log2 < 32 ? 1u << align_log2 : ~0u; }

uint32_t InlineSignature(wabt::Type type) {
  switch (type) {
    case wabt::Type::I32:
      return 1;
    case wabt::Type::I64:
      return 2;
    case wabt::Type::F32:
      return 3;
    case wabt::Type::F64:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

Result Delegate::BeginFunctionBody(Index index, Offset) {
  source_ = state->offset;
  if (Failed(validator_.BeginFunctionBody(Here(), index))) {
    return Result::Error;
  }
  function_ = &module_.functions[index];
  function_->source = static_cast<uint32_t>(source_);
  local_count_ = module_.type_of(*function_).params.size();
  depth_ = 1;
  return Result::Ok;
}

Result Delegate::OnLocalDecl(Index, Index count, wabt::Type type) {
  source_ = state->offset;
  if (Failed(validator_.OnLocalDecl(Here(), count, type))) {
    return Result::Error;
  }
  const std::optional<ir::Type> local_type = TypeOf(type);
  if (!local_type) {
    return Refuse(source_, "A local has the type " + type.GetName() + "; i32, i64, f32 and f64 are supported.");
  }
  local_count_ += count;
  if (local_count_ > limits::kWasmLocalsMax) {
    return Refuse(source_, "The function has more locals (" + std::to_string(local_count_) + ") than the limit (" +
                               std::to_string(limits::kWasmLocalsMax) + ").");
  }
  function_->locals.push_back({count, *local_type});
  return Result::Ok;
}

Result Delegate::EndFunctionBody(Index) {
  source_ = state->offset;
  function_ = nullptr;
  if (depth_ != 0) {  // wabt's validator takes the last end for the function's.
    return Refuse(source_, "The module is not valid WebAssembly: a function's body ends inside a block.");
  }
  return validator_.EndFunctionBody(Here());
}

Result Delegate::OnOpcode(Opcode opcode) {
  if (opcode.IsInvalid()) {
    source_ = state->offset - 1;
    return Result::Ok;  // The reader says so next.
  }
  row_ = &MapOpcode(opcode);
  source_ = state->offset - row_->bytes;
  if (function_ != nullptr && depth_ == 0) {
    return Refuse(source_, "The module is not valid WebAssembly: an instruction follows the function's end.");
  }
  if (row_->refusal != nullptr) {
    return Refuse(source_,
                  "The instruction \"" + std::string(opcode.GetName()) + "\" is refused: " + row_->refusal + ".");
  }
  return Result::Ok;
}

Result Delegate::Record(Result validated, uint64_t imm) {
  if (Failed(validated)) {
    return Result::Error;
  }
  if (function_ == nullptr || row_->instr.kind == InstrKind::kNop) {
    return Result::Ok;
  }
  if (++instructions_ > limits::kWasmInstructionsMax) {
    return Refuse(source_, "The module has more instructions than the limit (" +
                               std::to_string(limits::kWasmInstructionsMax) + ").");
  }
  Instr instr = row_->instr;
  instr.source = static_cast<uint32_t>(source_);
  instr.imm = imm;
  function_->code.push_back(instr);
  return Result::Ok;
}

Result Delegate::RecordBlock(Result validated, wabt::Type signature) {
  if (Failed(validated)) {
    return Result::Error;
  }
  if (++depth_ > limits::kWasmNestingMax) {
    return Refuse(source_, "Blocks nest deeper than the limit (" + std::to_string(limits::kWasmNestingMax) + ").");
  }
  if (!signature.IsIndex() && signature != wabt::Type::Void && !TypeOf(signature)) {
    return Refuse(source_,
                  "A block has a result of the type " + signature.GetName() + "; i32, i64, f32 and f64 are supported.");
  }
  return Record(validated, signature.IsIndex() ? kInlineSignatures + signature.GetIndex() : InlineSignature(signature));
}

Result Delegate::OnUnaryExpr(Opcode opcode) { return Record(validator_.OnUnary(Here(), opcode)); }
Result Delegate::OnBinaryExpr(Opcode opcode) { return Record(validator_.OnBinary(Here(), opcode)); }
Result Delegate::OnCompareExpr(Opcode opcode) { return Record(validator_.OnCompare(Here(), opcode)); }
Result Delegate::OnConvertExpr(Opcode opcode) { return Record(validator_.OnConvert(Here(), opcode)); }

Result Delegate::OnConst(wabt::Type type, uint64_t bits) {
  constant_ = bits;
  return Record(validator_.OnConst(Here(), type), bits);
}
Result Delegate::OnI32ConstExpr(uint32_t bits) { return OnConst(wabt::Type::I32, bits); }
Result Delegate::OnI64ConstExpr(uint64_t bits) { return OnConst(wabt::Type::I64, bits); }
Result Delegate::OnF32ConstExpr(uint32_t bits) { return OnConst(wabt::Type::F32, bits); }
Result Delegate::OnF64ConstExpr(uint64_t bits) { return OnConst(wabt::Type::F64, bits); }

Result Delegate::OnLoadExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return Record(validator_.OnLoad(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnStoreExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return Record(validator_.OnStore(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicLoadExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return Record(validator_.OnAtomicLoad(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicStoreExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return Record(validator_.OnAtomicStore(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicRmwExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return Record(validator_.OnAtomicRmw(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicRmwCmpxchgExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return Record(validator_.OnAtomicRmwCmpxchg(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicFenceExpr(uint32_t model) { return Record(validator_.OnAtomicFence(Here(), model)); }

Result Delegate::OnMemorySizeExpr(Index memory) { return Record(validator_.OnMemorySize(Here(), At(memory))); }
Result Delegate::OnMemoryGrowExpr(Index memory) { return Record(validator_.OnMemoryGrow(Here(), At(memory))); }
Result Delegate::OnMemoryCopyExpr(Index source, Index target) {
  return Record(validator_.OnMemoryCopy(Here(), At(source), At(target)));
}
Result Delegate::OnMemoryFillExpr(Index memory) { return Record(validator_.OnMemoryFill(Here(), At(memory))); }

Result Delegate::OnLocalGetExpr(Index local) { return Record(validator_.OnLocalGet(Here(), At(local)), local); }
Result Delegate::OnLocalSetExpr(Index local) { return Record(validator_.OnLocalSet(Here(), At(local)), local); }
Result Delegate::OnLocalTeeExpr(Index local) { return Record(validator_.OnLocalTee(Here(), At(local)), local); }
Result Delegate::OnGlobalGetExpr(Index global) { return Record(validator_.OnGlobalGet(Here(), At(global)), global); }
Result Delegate::OnGlobalSetExpr(Index global) { return Record(validator_.OnGlobalSet(Here(), At(global)), global); }

Result Delegate::OnBlockExpr(wabt::Type signature) {
  return RecordBlock(validator_.OnBlock(Here(), signature), signature);
}
Result Delegate::OnLoopExpr(wabt::Type signature) {
  return RecordBlock(validator_.OnLoop(Here(), signature), signature);
}
Result Delegate::OnIfExpr(wabt::Type signature) { return RecordBlock(validator_.OnIf(Here(), signature), signature); }
Result Delegate::OnElseExpr() { return Record(validator_.OnElse(Here())); }

Result Delegate::OnEndExpr() {
  if (function_ == nullptr) {
    return Result::Ok;  // Of an initial value; EndInitExpr checks it.
  }
  // The validator takes the function's own end in EndFunctionBody.
  return Record(--depth_ == 0 ? Result(Result::Ok) : validator_.OnEnd(Here()));
}

Result Delegate::OnBrExpr(Index depth) { return Record(validator_.OnBr(Here(), At(depth)), depth); }
Result Delegate::OnBrIfExpr(Index depth) { return Record(validator_.OnBrIf(Here(), At(depth)), depth); }

Result Delegate::OnBrTableExpr(Index count, Index* depths, Index default_depth) {
  if (Failed(validator_.BeginBrTable(Here()))) {
    return Result::Error;
  }
  const bool is_recorded = function_ != nullptr;
  const uint64_t first = is_recorded ? function_->br_depths.size() : 0;
  for (uint64_t i = 0; i <= count; ++i) {
    const Index depth = i < count ? depths[i] : default_depth;
    if (Failed(validator_.OnBrTableTarget(Here(), At(depth)))) {
      return Result::Error;
    }
    if (is_recorded) {
      function_->br_depths.push_back(depth);
    }
  }
  return Record(validator_.EndBrTable(Here()), first | (uint64_t{count} + 1) << 32);
}

Result Delegate::OnReturnExpr() { return Record(validator_.OnReturn(Here())); }
Result Delegate::OnCallExpr(Index function) { return Record(validator_.OnCall(Here(), At(function)), function); }
Result Delegate::OnCallIndirectExpr(Index signature, Index table) {
  return Record(validator_.OnCallIndirect(Here(), At(signature), At(table)), uint64_t{kInlineSignatures} + signature);
}
Result Delegate::OnDropExpr() { return Record(validator_.OnDrop(Here())); }
Result Delegate::OnSelectExpr(Index result_count, wabt::Type* result_types) {
  return Record(validator_.OnSelect(Here(), result_count, result_types));
}
Result Delegate::OnNopExpr() { return Record(validator_.OnNop(Here())); }
Result Delegate::OnUnreachableExpr() { return Record(validator_.OnUnreachable(Here())); }

}  // namespace hpvm::wasm
