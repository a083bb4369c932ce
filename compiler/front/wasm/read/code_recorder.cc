// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/code_recorder.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/limits.h"
#include "compiler/front/wasm/read/fault.h"

namespace hpvm::wasm {
namespace {

using wabt::Result;

uint32_t InlineSignature(ValueType type) { return static_cast<uint32_t>(type) + 1; }

}  // namespace

bool Reading::AddError(const wabt::Error& error) {
  // wabt skips unreadable custom sections and reports their faults as warnings.
  if (error.error_level == wabt::ErrorLevel::Error) {
    errors_.push_back(error);
  }
  return true;
}

Diagnostic Reading::TakeFault(const std::string& place) const {
  if (refusal_) {
    Diagnostic fault = *refusal_;
    fault.place = place;
    return fault;
  }
  Diagnostic fault = Fault(place, std::nullopt, "The module is not valid WebAssembly: ");
  if (errors_.empty()) {
    fault.message += "it cannot be read.";
    return fault;
  }
  fault.message += errors_[0].message;
  fault.message += fault.message.ends_with('.') ? "" : ".";
  if (errors_[0].loc.offset != wabt::kInvalidOffset) {
    fault.offset = errors_[0].loc.offset;
  }
  return fault;
}

Result Reading::Refuse(uint64_t offset, std::string message) {
  if (!refusal_ && errors_.empty()) {
    refusal_ = Fault("", offset, std::move(message));
  }
  return Result::Error;
}

// The last byte of a ten-byte number may use only one bit. A last byte is never preceded by the end of another
// number.
Result Reading::CheckUnsigned64(uint64_t end) {
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

Result Reading::CheckCount(size_t count, std::string_view items) {
  if (count < limits::kWasmItemsMax) {
    return Result::Ok;
  }
  return Refuse(state->offset, "The module has more " + std::string(items) + " than the limit (" +
                                   std::to_string(limits::kWasmItemsMax) + ").");
}

std::optional<ValueType> Reading::TypeOf(wabt::Type type, std::string_view what) {
  switch (type) {
    case wabt::Type::I32:
      return ValueType::kI32;
    case wabt::Type::I64:
      return ValueType::kI64;
    case wabt::Type::F32:
      return ValueType::kF32;
    case wabt::Type::F64:
      return ValueType::kF64;
    case wabt::Type::V128:
      return ValueType::kV128;
    case wabt::Type::FuncRef:
      return ValueType::kFuncRef;
    case wabt::Type::ExternRef:
      return ValueType::kExternRef;
    default:
      Refuse(source, std::string(what) + " has the type " + type.GetName() +
                         "; i32, i64, f32, f64, v128, funcref and externref are supported.");
      return std::nullopt;
  }
}

Result CodeRecorder::BeginBody(Index index, wabt::Offset size) {
  r_.source = r_.state->offset;
  if (Failed(r_.validator.BeginFunctionBody(r_.Here(), index))) {
    return Result::Error;
  }
  function_ = &r_.module.functions[index];
  function_->source = static_cast<uint32_t>(r_.source);
  // A typical count for compiler output; the size has not been checked yet.
  function_->code.reserve(std::min(size, r_.state->size - r_.state->offset) / 2);
  local_starts_.clear();
  local_count_ = slot_count_ = 0;
  for (const ValueType type : r_.module.signature_of(*function_).params) {
    AddLocals(1, type);
  }
  depth_ = 1;
  return Result::Ok;
}

Result CodeRecorder::DeclareLocals(Index count, wabt::Type type) {
  r_.source = r_.state->offset;
  if (Failed(r_.validator.OnLocalDecl(r_.Here(), count, type))) {
    return Result::Error;
  }
  const std::optional<ValueType> local_type = r_.TypeOf(type, "A local");
  if (!local_type) {
    return Result::Error;
  }
  if (count > limits::kWasmLocalsMax || local_count_ + count > limits::kWasmLocalsMax) {
    return r_.Refuse(r_.source, "The function has more locals (" + std::to_string(local_count_ + count) +
                                    ") than the limit (" + std::to_string(limits::kWasmLocalsMax) + ").");
  }
  AddLocals(count, *local_type);
  function_->locals.push_back({count, *local_type});
  return Result::Ok;
}

void CodeRecorder::AddLocals(uint32_t count, ValueType type) {
  local_starts_.push_back({static_cast<uint32_t>(local_count_), static_cast<uint32_t>(slot_count_), type});
  local_count_ += count;
  slot_count_ += uint64_t{count} * Slots(type);
}

Result CodeRecorder::EndBody() {
  r_.source = r_.state->offset;
  function_ = nullptr;
  if (depth_ != 0) {  // wabt's validator takes the last end for the end of the function.
    return r_.Refuse(r_.source, "The module is not valid WebAssembly: a function's body ends inside a block.");
  }
  return r_.validator.EndFunctionBody(r_.Here());
}

Result CodeRecorder::BeginInstruction(Opcode opcode) {
  if (opcode.IsInvalid()) {
    r_.source = r_.state->offset - 1;
    return Result::Ok;  // The reader reports the fault next.
  }
  opcode_ = opcode;
  row_ = rows_ + static_cast<uint32_t>(opcode);
  r_.source = r_.state->offset - row_->bytes;
  if (function_ != nullptr && depth_ == 0) {
    return r_.Refuse(r_.source, "The module is not valid WebAssembly: an instruction follows the function's end.");
  }
  if (row_->refusal != nullptr) {
    return r_.Refuse(r_.source,
                     "The instruction \"" + std::string(opcode.GetName()) + "\" is refused: " + row_->refusal + ".");
  }
  return Result::Ok;
}

Result CodeRecorder::Record(Result validated, uint64_t imm) {
  if (Failed(validated)) {
    return Result::Error;
  }
  if (function_ == nullptr || row_->instr.kind == InstrKind::kNop) {
    return Result::Ok;
  }
  if (++instructions_ > limits::kWasmInstructionsMax) {
    return r_.Refuse(r_.source, "The module has more instructions than the limit (" +
                                    std::to_string(limits::kWasmInstructionsMax) + ").");
  }
  Instr instr = row_->instr;
  instr.source = static_cast<uint32_t>(r_.source);
  instr.imm = imm;
  function_->code.push_back(instr);
  return Result::Ok;
}

Result CodeRecorder::RecordBlock(Result validated, wabt::Type signature) {
  if (Failed(validated)) {
    return Result::Error;
  }
  if (++depth_ > limits::kWasmNestingMax) {
    return r_.Refuse(r_.source, "Blocks nest deeper than the limit (" + std::to_string(limits::kWasmNestingMax) + ").");
  }
  if (signature.IsIndex()) {
    const uint32_t index = kInlineSignatures + signature.GetIndex();
    return RecordTyped(validated, index, index);
  }
  if (signature == wabt::Type::Void) {
    return Record(validated, 0);
  }
  const std::optional<ValueType> result = r_.TypeOf(signature, "A block's result");
  return result ? Record(validated, InlineSignature(*result)) : Result(Result::Error);
}

Result CodeRecorder::RecordTyped(Result validated, uint32_t signature, uint64_t imm) {
  if (Failed(validated)) {
    return Result::Error;
  }
  constexpr size_t kValuesPerInstruction = 8;
  const Signature& type = r_.module.signatures[signature];
  instructions_ += (type.params.size() + type.results.size()) / kValuesPerInstruction;
  return Record(validated, imm);
}

Result CodeRecorder::RecordLocal(Result validated, Index local) {
  if (Failed(Record(validated, local))) {
    return Result::Error;
  }
  if (function_ == nullptr) {
    return Result::Ok;
  }
  Instr& instr = function_->code.back();
  instr.width = 1;
  if (slot_count_ != local_count_) {
    const auto after = std::ranges::upper_bound(local_starts_, local, {}, &LocalStart::index);
    const LocalStart& start = *std::prev(after);
    instr.width = static_cast<uint8_t>(Slots(start.type));
    instr.imm = start.slot + uint64_t{local - start.index} * instr.width;
  }
  return Result::Ok;
}

Result CodeRecorder::RecordSimd(Result validated, uint64_t lane, const SimdImmediates* immediates) {
  if (Failed(validated) || function_ == nullptr) {
    return validated;
  }
  const uint64_t at = function_->simd.size();
  if (immediates != nullptr) {
    function_->simd.push_back(*immediates);
  }
  return Record(validated, PackSimd(static_cast<uint32_t>(row_ - rows_), lane, at));
}

Result CodeRecorder::RecordAccess(Result validated, Address offset, std::optional<uint64_t> lane) {
  // The lane is one byte after the offset.
  if (Failed(r_.CheckUnsigned64(r_.state->offset - (lane.has_value() ? 1 : 0)))) {
    return Result::Error;
  }
  if (row_->instr.kind != InstrKind::kSimd) {
    return Record(validated, offset);
  }
  const SimdImmediates immediates{offset, 0};
  return RecordSimd(validated, lane.value_or(0), &immediates);
}

Result CodeRecorder::RecordTable(Result validated, Index table, uint64_t imm) {
  if (r_.IsTable64(table)) {
    return r_.Refuse(r_.source, "The instruction \"" + std::string(opcode_.GetName()) + "\" is refused: table " +
                                    std::to_string(table) +
                                    " has 64-bit indices, and only call_indirect is supported with them.");
  }
  return Record(validated, imm);
}

// Records an operation, scalar or with the prefix 0xfd.
Result CodeRecorder::RecordPlain(Result validated) {
  return row_->instr.kind == InstrKind::kSimd ? RecordSimd(validated, 0, nullptr) : Record(validated);
}

Result CodeRecorder::RecordConst(wabt::Type type, uint64_t low, uint64_t high) {
  constant_ = {.kind = Constant::Kind::kBits, .low = low, .high = high};
  const Result validated = r_.validator.OnConst(r_.Here(), type);
  if (type != wabt::Type::V128) {
    return Record(validated, low);
  }
  const SimdImmediates immediates{low, high};
  return RecordSimd(validated, 0, &immediates);
}

Result CodeRecorder::RecordEnd() {
  if (function_ == nullptr) {
    constant_ended_ = true;
    return Result::Ok;  // EndConstant checks the value.
  }
  // EndFunctionBody passes the end of the function itself to the validator.
  return Record(--depth_ == 0 ? Result(Result::Ok) : r_.validator.OnEnd(r_.Here()));
}

Result CodeRecorder::RecordBrTable(Index count, Index* depths, Index default_depth) {
  if (Failed(r_.validator.BeginBrTable(r_.Here()))) {
    return Result::Error;
  }
  const bool is_recorded = function_ != nullptr;
  const uint64_t first = is_recorded ? function_->br_depths.size() : 0;
  for (uint64_t i = 0; i <= count; ++i) {
    const Index depth = i < count ? depths[i] : default_depth;
    if (Failed(r_.validator.OnBrTableTarget(r_.Here(), r_.At(depth)))) {
      return Result::Error;
    }
    if (is_recorded) {
      function_->br_depths.push_back(depth);
    }
  }
  return Record(r_.validator.EndBrTable(r_.Here()), first | (uint64_t{count} + 1) << 32);
}

void CodeRecorder::BeginConstant() {
  constant_ = {};
  constant_ended_ = false;
}

// wabt accepts the end of the section as the end of an initial value.
Result CodeRecorder::EndConstant() {
  return constant_ended_ ? r_.validator.EndInitExpr()
                         : r_.Refuse(r_.source, "The section ends within an initial value.");
}

}  // namespace hpvm::wasm
