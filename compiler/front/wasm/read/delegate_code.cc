// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>

#include "base/limits.h"
#include "compiler/front/wasm/read/delegate.h"

namespace hpvm::wasm {
namespace {

using wabt::Result;

uint32_t Alignment(wabt::Address align_log2) { return align_log2 < 32 ? 1u << align_log2 : ~0u; }

uint32_t InlineSignature(ValueType type) { return static_cast<uint32_t>(type) + 1; }

}  // namespace

Result Delegate::BeginFunctionBody(Index index, Offset size) {
  source_ = state->offset;
  if (Failed(validator_.BeginFunctionBody(Here(), index))) {
    return Result::Error;
  }
  function_ = &module_.functions[index];
  function_->source = static_cast<uint32_t>(source_);
  // About what the instructions of compilers take; the size is not checked yet.
  function_->code.reserve(std::min(size, state->size - state->offset) / 2);
  local_starts_.clear();
  local_count_ = slot_count_ = 0;
  for (const ValueType type : module_.signature_of(*function_).params) {
    AddLocals(1, type);
  }
  depth_ = 1;
  return Result::Ok;
}

Result Delegate::OnLocalDecl(Index, Index count, wabt::Type type) {
  source_ = state->offset;
  if (Failed(validator_.OnLocalDecl(Here(), count, type))) {
    return Result::Error;
  }
  const std::optional<ValueType> local_type = TypeOf(type, "A local");
  if (!local_type) {
    return Result::Error;
  }
  if (count > limits::kWasmLocalsMax || local_count_ + count > limits::kWasmLocalsMax) {
    return Refuse(source_, "The function has more locals (" + std::to_string(local_count_ + count) +
                               ") than the limit (" + std::to_string(limits::kWasmLocalsMax) + ").");
  }
  AddLocals(count, *local_type);
  function_->locals.push_back({count, *local_type});
  return Result::Ok;
}

void Delegate::AddLocals(uint32_t count, ValueType type) {
  local_starts_.push_back({static_cast<uint32_t>(local_count_), static_cast<uint32_t>(slot_count_), type});
  local_count_ += count;
  slot_count_ += uint64_t{count} * Slots(type);
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
  opcode_ = opcode;
  row_ = rows_ + static_cast<uint32_t>(opcode);
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
  if (signature.IsIndex()) {
    const uint32_t index = kInlineSignatures + signature.GetIndex();
    return RecordTyped(validated, index, index);
  }
  if (signature == wabt::Type::Void) {
    return Record(validated, 0);
  }
  const std::optional<ValueType> result = TypeOf(signature, "A block's result");
  return result ? Record(validated, InlineSignature(*result)) : Result(Result::Error);
}

Result Delegate::RecordTyped(Result validated, uint32_t signature, uint64_t imm) {
  if (Failed(validated)) {
    return Result::Error;
  }
  constexpr size_t kValuesPerInstruction = 8;
  const Signature& type = module_.signatures[signature];
  instructions_ += (type.params.size() + type.results.size()) / kValuesPerInstruction;
  return Record(validated, imm);
}

Result Delegate::RecordLocal(Result validated, Index local) {
  if (Failed(Record(validated, local))) {
    return Result::Error;
  }
  if (function_ == nullptr) {
    return Result::Ok;
  }
  Instr& instr = function_->code.back();
  instr.width = 1;
  if (slot_count_ != local_count_) {
    const auto after = std::upper_bound(local_starts_.begin(), local_starts_.end(), local,
                                        [](Index index, const LocalStart& start) { return index < start.index; });
    const LocalStart& start = *std::prev(after);
    instr.width = static_cast<uint8_t>(Slots(start.type));
    instr.imm = start.slot + uint64_t{local - start.index} * instr.width;
  }
  return Result::Ok;
}

Result Delegate::RecordSimd(Result validated, uint64_t lane, const SimdImmediates* immediates) {
  if (Failed(validated) || function_ == nullptr) {
    return validated;
  }
  const uint64_t at = function_->simd.size();
  if (immediates != nullptr) {
    function_->simd.push_back(*immediates);
  }
  return Record(validated, PackSimd(static_cast<uint32_t>(row_ - rows_), lane, at));
}

// A number of ten bytes has one bit in the last of them; what precedes it never ends in a byte that is continued.
Result Delegate::CheckUnsigned64(uint64_t end) {
  constexpr uint64_t kBytesMax = 10;
  if (end < kBytesMax || state->data[end - 1] <= 1) {
    return Result::Ok;
  }
  const uint8_t* number = state->data + end - kBytesMax;
  if (!std::all_of(number, number + kBytesMax - 1, [](uint8_t byte) { return (byte & 0x80) != 0; })) {
    return Result::Ok;
  }
  return Refuse(end - kBytesMax, "The module is not valid WebAssembly: a number is larger than 64 bits.");
}

Result Delegate::RecordAccess(Result validated, Address offset, std::optional<uint64_t> lane) {
  // A lane is one byte behind the offset.
  if (Failed(CheckUnsigned64(state->offset - (lane.has_value() ? 1 : 0)))) {
    return Result::Error;
  }
  if (row_->instr.kind != InstrKind::kSimd) {
    return Record(validated, offset);
  }
  const SimdImmediates immediates{offset, 0};
  return RecordSimd(validated, lane.value_or(0), &immediates);
}

Result Delegate::RecordTable(Result validated, Index table, uint64_t imm) {
  if (IsTable64(table)) {
    return Refuse(source_, "The instruction \"" + std::string(opcode_.GetName()) + "\" is refused: table " +
                               std::to_string(table) +
                               " has 64-bit indices, and only call_indirect is supported with them.");
  }
  return Record(validated, imm);
}

// An operation, scalar or with the prefix 0xfd.
Result Delegate::RecordPlain(Result validated) {
  return row_->instr.kind == InstrKind::kSimd ? RecordSimd(validated, 0, nullptr) : Record(validated);
}

Result Delegate::OnUnaryExpr(Opcode opcode) { return RecordPlain(validator_.OnUnary(Here(), opcode)); }
Result Delegate::OnBinaryExpr(Opcode opcode) { return RecordPlain(validator_.OnBinary(Here(), opcode)); }
Result Delegate::OnCompareExpr(Opcode opcode) { return RecordPlain(validator_.OnCompare(Here(), opcode)); }
Result Delegate::OnConvertExpr(Opcode opcode) { return RecordPlain(validator_.OnConvert(Here(), opcode)); }

Result Delegate::OnTernaryExpr(Opcode opcode) { return RecordPlain(validator_.OnTernary(Here(), opcode)); }

Result Delegate::OnConst(wabt::Type type, uint64_t low, uint64_t high) {
  constant_ = {.kind = Constant::Kind::kBits, .low = low, .high = high};
  const Result validated = validator_.OnConst(Here(), type);
  if (type != wabt::Type::V128) {
    return Record(validated, low);
  }
  const SimdImmediates immediates{low, high};
  return RecordSimd(validated, 0, &immediates);
}
Result Delegate::OnI32ConstExpr(uint32_t bits) { return OnConst(wabt::Type::I32, bits); }
Result Delegate::OnI64ConstExpr(uint64_t bits) { return OnConst(wabt::Type::I64, bits); }
Result Delegate::OnF32ConstExpr(uint32_t bits) { return OnConst(wabt::Type::F32, bits); }
Result Delegate::OnF64ConstExpr(uint64_t bits) { return OnConst(wabt::Type::F64, bits); }
Result Delegate::OnV128ConstExpr(v128 bits) { return OnConst(wabt::Type::V128, bits.u64(0), bits.u64(1)); }

Result Delegate::OnLoadExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnLoad(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnStoreExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnStore(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicLoadExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnAtomicLoad(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicStoreExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnAtomicStore(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicRmwExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnAtomicRmw(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicRmwCmpxchgExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnAtomicRmwCmpxchg(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicNotifyExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnAtomicNotify(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnAtomicWaitExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnAtomicWait(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnLoadSplatExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnLoadSplat(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnLoadZeroExpr(Opcode opcode, Index memory, Address align_log2, Address offset) {
  return RecordAccess(validator_.OnLoadZero(Here(), opcode, At(memory), Alignment(align_log2)), offset);
}
Result Delegate::OnSimdLoadLaneExpr(Opcode opcode, Index memory, Address align_log2, Address offset, uint64_t lane) {
  return RecordAccess(validator_.OnSimdLoadLane(Here(), opcode, At(memory), Alignment(align_log2), lane), offset, lane);
}
Result Delegate::OnSimdStoreLaneExpr(Opcode opcode, Index memory, Address align_log2, Address offset, uint64_t lane) {
  return RecordAccess(validator_.OnSimdStoreLane(Here(), opcode, At(memory), Alignment(align_log2), lane), offset,
                      lane);
}
Result Delegate::OnSimdLaneOpExpr(Opcode opcode, uint64_t lane) {
  return RecordSimd(validator_.OnSimdLaneOp(Here(), opcode, lane), lane, nullptr);
}
Result Delegate::OnSimdShuffleOpExpr(Opcode opcode, v128 lanes) {
  const SimdImmediates immediates{lanes.u64(0), lanes.u64(1)};
  return RecordSimd(validator_.OnSimdShuffleOp(Here(), opcode, lanes), 0, &immediates);
}
Result Delegate::OnAtomicFenceExpr(uint32_t model) { return Record(validator_.OnAtomicFence(Here(), model)); }

Result Delegate::OnMemorySizeExpr(Index memory) { return Record(validator_.OnMemorySize(Here(), At(memory))); }
Result Delegate::OnMemoryGrowExpr(Index memory) { return Record(validator_.OnMemoryGrow(Here(), At(memory))); }
Result Delegate::OnMemoryCopyExpr(Index source, Index target) {
  return Record(validator_.OnMemoryCopy(Here(), At(source), At(target)));
}
Result Delegate::OnMemoryFillExpr(Index memory) { return Record(validator_.OnMemoryFill(Here(), At(memory))); }
Result Delegate::OnMemoryInitExpr(Index segment, Index memory) {
  return Record(validator_.OnMemoryInit(Here(), At(segment), At(memory)), segment);
}
Result Delegate::OnDataDropExpr(Index segment) { return Record(validator_.OnDataDrop(Here(), At(segment)), segment); }

Result Delegate::OnRefNullExpr(wabt::Type type) {
  if (!TypeOf(type, "A null reference")) {
    return Result::Error;
  }
  constant_ = {};
  return Record(validator_.OnRefNull(Here(), type));
}
Result Delegate::OnRefIsNullExpr() { return Record(validator_.OnRefIsNull(Here())); }
Result Delegate::OnRefFuncExpr(Index function) {
  constant_ = {.kind = Constant::Kind::kFunction, .index = function};
  return Record(validator_.OnRefFunc(Here(), At(function)), function);
}

Result Delegate::OnTableGetExpr(Index table) {
  return RecordTable(validator_.OnTableGet(Here(), At(table)), table, table);
}
Result Delegate::OnTableSetExpr(Index table) {
  return RecordTable(validator_.OnTableSet(Here(), At(table)), table, table);
}
Result Delegate::OnTableSizeExpr(Index table) {
  return RecordTable(validator_.OnTableSize(Here(), At(table)), table, table);
}
Result Delegate::OnTableGrowExpr(Index table) {
  return RecordTable(validator_.OnTableGrow(Here(), At(table)), table, table);
}
Result Delegate::OnTableFillExpr(Index table) {
  return RecordTable(validator_.OnTableFill(Here(), At(table)), table, table);
}
Result Delegate::OnTableCopyExpr(Index target, Index source) {
  return RecordTable(validator_.OnTableCopy(Here(), At(target), At(source)), IsTable64(source) ? source : target,
                     target | uint64_t{source} << 32);
}
Result Delegate::OnTableInitExpr(Index segment, Index table) {
  return RecordTable(validator_.OnTableInit(Here(), At(segment), At(table)), table, segment | uint64_t{table} << 32);
}
Result Delegate::OnElemDropExpr(Index segment) { return Record(validator_.OnElemDrop(Here(), At(segment)), segment); }

Result Delegate::OnLocalGetExpr(Index local) { return RecordLocal(validator_.OnLocalGet(Here(), At(local)), local); }
Result Delegate::OnLocalSetExpr(Index local) { return RecordLocal(validator_.OnLocalSet(Here(), At(local)), local); }
Result Delegate::OnLocalTeeExpr(Index local) { return RecordLocal(validator_.OnLocalTee(Here(), At(local)), local); }
Result Delegate::OnGlobalGetExpr(Index global) {
  constant_ = {.kind = Constant::Kind::kGlobal, .index = global};
  return Record(validator_.OnGlobalGet(Here(), At(global)), global);
}
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
    constant_ended_ = true;
    return Result::Ok;  // EndConstant checks the value.
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
Result Delegate::OnCallExpr(Index function) {
  if (Failed(validator_.OnCall(Here(), At(function)))) {
    return Result::Error;
  }
  return RecordTyped(Result::Ok, module_.functions[function].signature, function);
}
Result Delegate::OnCallIndirectExpr(Index signature, Index table) {
  // The validator does not ask what the table holds.
  if (table < module_.tables.size() && module_.tables[table].type != ValueType::kFuncRef) {
    return Refuse(source_,
                  "An indirect call goes through table " + std::to_string(table) + ", which holds no functions.");
  }
  // The validator knows 32-bit tables only.
  if (IsTable64(table) && Failed(validator_.OnConvert(Here(), Opcode::I32WrapI64))) {
    return Result::Error;
  }
  const uint32_t index = kInlineSignatures + signature;
  return RecordTyped(validator_.OnCallIndirect(Here(), At(signature), At(table)), index, index | uint64_t{table} << 32);
}
Result Delegate::OnDropExpr() { return Record(validator_.OnDrop(Here())); }
Result Delegate::OnSelectExpr(Index result_count, wabt::Type* result_types) {
  return Record(validator_.OnSelect(Here(), result_count, result_types));
}
Result Delegate::OnNopExpr() { return Record(validator_.OnNop(Here())); }
Result Delegate::OnUnreachableExpr() { return Record(validator_.OnUnreachable(Here())); }

}  // namespace hpvm::wasm
