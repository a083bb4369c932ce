// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "wabt/binary-reader.h"

#include "base/limits.h"
#include "compiler/front/wasm/read/delegate.h"
#include "compiler/front/wasm/read/element_globals.h"
#include "compiler/front/wasm/read/narrow_table.h"
#include "compiler/front/wasm/read/reader.h"

namespace hpvm::wasm {
namespace {

using wabt::Result;

constexpr size_t kNameBytesMax = 256;  // Names are for people; longer names are cut.

wabt::SegmentKind KindOf(uint8_t flags) {
  // wabt's reader has checked the bits: 1 means passive, and together with 2 declared.
  if ((flags & wabt::SegDeclared) == wabt::SegDeclared) {
    return wabt::SegmentKind::Declared;
  }
  return (flags & wabt::SegPassive) != 0 ? wabt::SegmentKind::Passive : wabt::SegmentKind::Active;
}

SegmentMode ModeOf(wabt::SegmentKind kind) {
  switch (kind) {
    case wabt::SegmentKind::Active:
      return SegmentMode::kActive;
    case wabt::SegmentKind::Passive:
      return SegmentMode::kPassive;
    default:
      return SegmentMode::kDeclared;
  }
}

// Checks the global's type, whatever its name.
bool CanPointToStack(const Module& module, const Global& global) {
  const bool is_64 = module.memory && module.memory->limits.is_64;
  return global.is_mutable && global.type == (is_64 ? ValueType::kI64 : ValueType::kI32);
}

// wasm-ld makes the stack pointer the first global; its stack ends at a multiple of 16 in the initial memory.
std::optional<uint32_t> GuessStackPointer(const Module& module) {
  if (module.globals.empty() || !module.memory) {
    return std::nullopt;
  }
  const Global& first = module.globals[0];
  const uint64_t end = first.init.low;
  const bool is_address = CanPointToStack(module, first) && !first.import && first.init.kind == Constant::Kind::kBits;
  const bool is_end = end != 0 && end % 16 == 0 && end / (64 * limits::kKiB) <= module.memory->limits.initial;
  return is_address && is_end ? std::optional<uint32_t>(0) : std::nullopt;
}

}  // namespace

Reading::Reading(const wabt::Features& features) : validator(&errors_, wabt::ValidateOptions(features)) {
  module.signatures.emplace_back();
  for (uint32_t i = 0; i + 1 < kInlineSignatures; ++i) {
    module.signatures.push_back({{}, {static_cast<ValueType>(i)}});
  }
  for (const Signature& signature : module.signatures) {
    module.types.push_back(IrType(signature));
  }
}

Delegate::Delegate(Reading& reading, CodeRecorder& code, std::vector<bool> is_64,
                   std::unordered_map<uint64_t, uint32_t> globals, std::span<const uint8_t> bytes)
    : CodeCallbacks(reading, code), element_globals_(std::move(globals)), is_64_(std::move(is_64)), bytes_(bytes) {}

ImportDecl Delegate::ImportOf(std::string_view module, std::string_view name) const {
  return {std::string(module.substr(0, kNameBytesMax)), std::string(name.substr(0, kNameBytesMax)), r_.source};
}

Result Delegate::BeginSection(Index, wabt::BinarySection section, Offset) {
  r_.source = state->offset;
  if (section == wabt::BinarySection::Tag) {
    return r_.Refuse(r_.source, "The module has a tag section: exceptions are not supported.");
  }
  return Result::Ok;
}

Result Delegate::EndModule() {
  if (!has_global_names_) {
    r_.module.stack_pointer = GuessStackPointer(r_.module);
  } else if (r_.module.stack_pointer && !CanPointToStack(r_.module, r_.module.globals[*r_.module.stack_pointer])) {
    r_.module.stack_pointer.reset();
  }
  if (data_count_ && *data_count_ != r_.module.data.size()) {  // The code refers to that many segments.
    return r_.Refuse(state->offset, "The module is not valid WebAssembly: the data count is " +
                                        std::to_string(*data_count_) + ", but the module has " +
                                        std::to_string(r_.module.data.size()) + " data segments.");
  }
  return validator_.EndModule();
}

Result Delegate::OnFuncType(Index index, Index param_count, wabt::Type* params, Index result_count,
                            wabt::Type* results) {
  r_.source = state->offset;
  if (Failed(r_.CheckCount(index, "types")) ||
      Failed(validator_.OnFuncType(Here(), param_count, params, result_count, results, index))) {
    return Result::Error;
  }
  Signature type;
  if (param_count > limits::kWasmSignatureMax || result_count > limits::kWasmSignatureMax) {
    return r_.Refuse(r_.source, "The function type " + std::to_string(index) + " has more parameters or results (" +
                                    std::to_string(std::max(param_count, result_count)) + ") than the limit (" +
                                    std::to_string(limits::kWasmSignatureMax) + ").");
  }
  for (uint64_t i = 0; i < uint64_t{param_count} + result_count; ++i) {
    const std::optional<ValueType> value =
        r_.TypeOf(i < param_count ? params[i] : results[i - param_count], "A value of a function type");
    if (!value) {
      return Result::Error;
    }
    (i < param_count ? type.params : type.results).push_back(*value);
  }
  r_.module.types.push_back(IrType(type));
  r_.module.signatures.push_back(std::move(type));
  return Result::Ok;
}

Result Delegate::AddFunction(Index signature, std::optional<ImportDecl> import) {
  if (Failed(r_.CheckCount(r_.module.functions.size(), "functions"))) {
    return Result::Error;
  }
  if (const uint64_t at = uint64_t{kInlineSignatures} + signature; at < r_.module.signatures.size()) {
    signature_values_ += r_.module.signatures[at].params.size() + r_.module.signatures[at].results.size();
  }
  if (signature_values_ > limits::kWasmSignatureValuesMax) {
    return r_.Refuse(r_.source, "The module's functions have more parameters and results together than the limit (" +
                                    std::to_string(limits::kWasmSignatureValuesMax) + ").");
  }
  if (Failed(validator_.OnFunction(Here(), At(signature)))) {
    return Result::Error;
  }
  Function function;
  function.signature = kInlineSignatures + signature;
  function.import = std::move(import);
  r_.module.functions.push_back(std::move(function));
  return Result::Ok;
}

Result Delegate::OnImportFunc(Index, std::string_view module, std::string_view name, Index, Index signature) {
  r_.source = state->offset;
  return AddFunction(signature, ImportOf(module, name));
}

Result Delegate::OnImportTable(Index, std::string_view module, std::string_view name, Index, wabt::Type type,
                               const wabt::Limits* entries) {
  r_.source = state->offset;
  return AddTable(type, *entries, ImportOf(module, name));
}
Result Delegate::OnImportMemory(Index, std::string_view module, std::string_view name, Index,
                                const wabt::Limits* pages) {
  r_.source = state->offset;
  return AddMemory(*pages, ImportOf(module, name));
}
Result Delegate::OnImportGlobal(Index, std::string_view module, std::string_view name, Index, wabt::Type type,
                                bool is_mutable) {
  r_.source = state->offset;
  if (Failed(validator_.OnGlobalImport(Here(), type, is_mutable))) {
    return Result::Error;
  }
  return AddGlobal(type, is_mutable, ImportOf(module, name));
}
Result Delegate::OnImportTag(Index, std::string_view module, std::string_view name, Index, Index) {
  return r_.Refuse(state->offset, "The tag import \"" + std::string(module.substr(0, kNameBytesMax)) + "." +
                                      std::string(name.substr(0, kNameBytesMax)) +
                                      "\" is refused: exceptions are not supported.");
}

Result Delegate::OnFunction(Index, Index signature) {
  r_.source = state->offset;
  return AddFunction(signature, std::nullopt);
}

Result Delegate::AddTable(wabt::Type type, const wabt::Limits& entries, std::optional<ImportDecl> import) {
  if (Failed(validator_.OnTable(Here(), type, entries))) {
    return Result::Error;
  }
  const std::optional<ValueType> element = r_.TypeOf(type, "A table's element");
  if (!element) {
    return Result::Error;
  }
  if (r_.module.tables.size() >= limits::kWasmTablesMax) {
    return r_.Refuse(r_.source,
                     "The module has more tables than the limit (" + std::to_string(limits::kWasmTablesMax) + ").");
  }
  Table table;
  table.type = *element;
  table.limits.initial = entries.initial;
  if (entries.has_max) {
    table.limits.maximum = entries.max;
  }
  table.import = std::move(import);
  table.source = r_.source;
  r_.module.tables.push_back(std::move(table));
  return Result::Ok;
}

Result Delegate::OnTable(Index, wabt::Type type, const wabt::Limits* entries) {
  r_.source = state->offset;
  if (Failed(AddTable(type, *entries, std::nullopt))) {
    return Result::Error;
  }
  r_.module.tables.back().limits.is_64 = tables_defined_ < is_64_.size() && is_64_[tables_defined_];
  ++tables_defined_;
  return Result::Ok;
}

// The reader's position is just after the limits: the initial size and, if present, the maximum.
Result Delegate::CheckPages(const wabt::Limits& pages) {
  if (!pages.is_64) {
    return Result::Ok;
  }
  uint64_t end = state->offset;
  if (Failed(r_.CheckUnsigned64(end))) {
    return Result::Error;
  }
  if (!pages.has_max) {
    return Result::Ok;
  }
  for (--end; end > 0 && (state->data[end - 1] & 0x80) != 0;) {
    --end;
  }
  return r_.CheckUnsigned64(end);
}

Result Delegate::AddMemory(const wabt::Limits& pages, std::optional<ImportDecl> import) {
  if (Failed(CheckPages(pages)) || Failed(validator_.OnMemory(Here(), pages))) {
    return Result::Error;
  }
  Memory memory;
  memory.limits.initial = pages.initial;
  memory.limits.is_64 = pages.is_64;
  memory.limits.is_shared = pages.is_shared;
  if (pages.has_max) {
    memory.limits.maximum = pages.max;
  }
  memory.import = std::move(import);
  memory.source = r_.source;
  r_.module.memory = std::move(memory);
  return Result::Ok;
}

Result Delegate::OnMemory(Index, const wabt::Limits* pages) {
  r_.source = state->offset;
  return AddMemory(*pages, std::nullopt);
}

Result Delegate::AddGlobal(wabt::Type type, bool is_mutable, std::optional<ImportDecl> import) {
  const std::optional<ValueType> value = r_.TypeOf(type, "A global");
  if (!value || Failed(r_.CheckCount(r_.module.globals.size(), "globals"))) {
    return Result::Error;
  }
  r_.module.globals.push_back(
      {.type = *value, .is_mutable = is_mutable, .import = std::move(import), .init = {}, .source = r_.source});
  return Result::Ok;
}

Result Delegate::BeginGlobal(Index, wabt::Type type, bool is_mutable) {
  r_.source = state->offset;
  if (Failed(validator_.OnGlobal(Here(), type, is_mutable))) {
    return Result::Error;
  }
  global_type_ = type;
  return AddGlobal(type, is_mutable, std::nullopt);
}

Result Delegate::BeginGlobalInitExpr(Index) {
  code_.BeginConstant();
  return validator_.BeginInitExpr(Here(), global_type_);
}
Result Delegate::EndGlobalInitExpr(Index) {
  r_.module.globals.back().init = code_.constant();
  return code_.EndConstant();
}

Result Delegate::OnExport(Index, wabt::ExternalKind kind, Index item, std::string_view name) {
  r_.source = state->offset;
  if (Failed(r_.CheckCount(r_.module.exports.size(), "exports")) ||
      Failed(validator_.OnExport(Here(), kind, At(item), name))) {
    return Result::Error;
  }
  constexpr ExternKind kKinds[] = {ExternKind::kFunction, ExternKind::kTable, ExternKind::kMemory, ExternKind::kGlobal};
  const size_t at = static_cast<size_t>(kind);
  if (at >= std::size(kKinds)) {
    return r_.Refuse(r_.source, "The module exports a tag: exceptions are not supported.");
  }
  r_.module.exports.push_back({std::string(name), kKinds[at], item});
  return Result::Ok;
}

Result Delegate::OnStartFunction(Index function) {
  r_.source = state->offset;
  r_.module.start = function;
  r_.module.start_source = r_.source;
  return validator_.OnStart(Here(), At(function));
}

Result Delegate::BeginElemSegment(Index, Index table, uint8_t flags) {
  r_.source = state->offset;
  const wabt::SegmentKind kind = KindOf(flags);
  if (Failed(r_.CheckCount(r_.module.elems.size(), "element segments")) ||
      Failed(validator_.OnElemSegment(Here(), At(table), kind))) {
    return Result::Error;
  }
  r_.module.elems.push_back(
      {.mode = ModeOf(kind), .table = table, .offset = {}, .functions = {}, .globals = {}, .source = r_.source});
  return Result::Ok;
}
Result Delegate::BeginElemSegmentInitExpr(Index) {
  code_.BeginConstant();
  return validator_.BeginInitExpr(Here(),
                                  r_.IsTable64(r_.module.elems.back().table) ? wabt::Type::I64 : wabt::Type::I32);
}
Result Delegate::EndElemSegmentInitExpr(Index) {
  r_.module.elems.back().offset = code_.constant();
  return code_.EndConstant();
}
Result Delegate::OnElemSegmentElemType(Index, wabt::Type type) {
  const std::optional<ValueType> element = r_.TypeOf(type, "An element segment");
  if (!element) {
    return Result::Error;
  }
  r_.module.elems.back().type = *element;
  return validator_.OnElemSegmentElemType(Here(), type);
}
Result Delegate::AddElementGlobal(uint32_t global, wabt::Type type) {
  const std::optional<ValueType> element = r_.TypeOf(type, "An element");
  if (global >= r_.module.globals.size() || !r_.module.globals[global].import || r_.module.globals[global].is_mutable ||
      !element || r_.module.globals[global].type != *element) {
    return r_.Refuse(state->offset,
                     "An element is not the value of a constant imported global of the segment's type (" +
                         std::to_string(global) + ").");
  }
  ElemSegment& segment = r_.module.elems.back();
  segment.globals.emplace_back(static_cast<uint32_t>(segment.functions.size()), global);
  return Result::Ok;
}
Result Delegate::OnElemSegmentElemExpr_RefNull(Index, wabt::Type type) {
  if (const auto found = element_globals_.find(state->offset);
      found != element_globals_.end() && Failed(AddElementGlobal(found->second, type))) {
    return Result::Error;
  }
  r_.module.elems.back().functions.push_back(kNullFunction);
  return validator_.OnElemSegmentElemExpr_RefNull(Here(), type);
}
Result Delegate::OnElemSegmentElemExpr_RefFunc(Index, Index function) {
  r_.module.elems.back().functions.push_back(function);
  return validator_.OnElemSegmentElemExpr_RefFunc(Here(), At(function));
}

Result Delegate::OnDataCount(Index count) {
  data_count_ = count;
  validator_.OnDataCount(count);
  return Result::Ok;
}
Result Delegate::BeginDataSegment(Index, Index memory, uint8_t flags) {
  r_.source = state->offset;
  const wabt::SegmentKind kind = KindOf(flags);
  if (Failed(r_.CheckCount(r_.module.data.size(), "data segments"))) {
    return Result::Error;
  }
  r_.module.data.push_back({.mode = ModeOf(kind), .offset = {}, .bytes = {}, .source = r_.source});
  return validator_.OnDataSegment(Here(), At(memory), kind);
}
Result Delegate::BeginDataSegmentInitExpr(Index) {
  code_.BeginConstant();
  const bool is_64 = r_.module.address_type() == ir::Type::kI64;
  return validator_.BeginInitExpr(Here(), is_64 ? wabt::Type::I64 : wabt::Type::I32);
}
Result Delegate::EndDataSegmentInitExpr(Index) {
  r_.module.data.back().offset = code_.constant();
  return code_.EndConstant();
}
Result Delegate::OnDataSegmentData(Index, const void* data, Address size) {
  const size_t at = static_cast<size_t>(static_cast<const uint8_t*>(data) - state->data);
  r_.module.data.back().bytes = bytes_.subspan(at, size);
  return Result::Ok;
}

Result Delegate::OnModuleName(std::string_view name) {
  r_.module.name = name.substr(0, kNameBytesMax);
  return Result::Ok;
}
Result Delegate::OnFunctionName(Index function, std::string_view name) {
  if (function < r_.module.functions.size()) {
    r_.module.functions[function].name = name.substr(0, kNameBytesMax);
  }
  return Result::Ok;
}

Result Delegate::OnNameEntry(wabt::NameSectionSubsection kind, Index index, std::string_view name) {
  if (kind == wabt::NameSectionSubsection::Global && index < r_.module.globals.size()) {
    has_global_names_ = true;
    if (name == "__stack_pointer") {
      r_.module.stack_pointer = index;
    }
  }
  return Result::Ok;
}

std::optional<Module> ReadModule(std::span<const uint8_t> bytes, const std::string& place, Diagnostics& diagnostics) {
  // Features that are refused by name must be readable first; wabt itself reports features that are not enabled here.
  wabt::Features features;
  features.enable_exceptions();
  features.enable_threads();
  features.enable_memory64();
  const NarrowedTables narrowed = NarrowTables(bytes);
  std::span<const uint8_t> read = narrowed.bytes.empty() ? bytes : std::span<const uint8_t>(narrowed.bytes);
  ElementGlobals replaced = ReplaceElementGlobals(read);
  read = replaced.bytes.empty() ? read : std::span<const uint8_t>(replaced.bytes);
  Reading reading(features);
  CodeRecorder code(reading);
  Delegate delegate(reading, code, narrowed.is_64, std::move(replaced.globals), bytes);
  const wabt::ReadBinaryOptions options(features, /*log_stream=*/nullptr, /*read_debug_names=*/true,
                                        /*stop_on_first_error=*/true, /*fail_on_custom_section_error=*/false);
  if (Failed(wabt::ReadBinary(read.data(), read.size(), &delegate, options)) || reading.HasFault()) {
    diagnostics.push_back(reading.TakeFault(place));
    return std::nullopt;
  }
  return std::move(reading.module);
}

}  // namespace hpvm::wasm
