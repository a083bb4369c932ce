// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "wabt/binary-reader.h"

#include "base/limits.h"
#include "compiler/front/wasm/delegate.h"
#include "compiler/front/wasm/fault.h"
#include "compiler/front/wasm/reader.h"

namespace hpvm::wasm {
namespace {

using wabt::Result;

constexpr size_t kNameBytesMax = 256;  // Names are for people; longer ones are cut.

wabt::SegmentKind KindOf(uint8_t flags) {
  // The bits that wabt's reader has checked: 1 passive, and with it 2 declared.
  if ((flags & wabt::SegDeclared) == wabt::SegDeclared) {
    return wabt::SegmentKind::Declared;
  }
  return (flags & wabt::SegPassive) != 0 ? wabt::SegmentKind::Passive : wabt::SegmentKind::Active;
}

}  // namespace

Delegate::Delegate(const wabt::Features& features) : validator_(&errors_, wabt::ValidateOptions(features)) {
  module_.signatures = {
      {}, {{}, {ir::Type::kI32}}, {{}, {ir::Type::kI64}}, {{}, {ir::Type::kF32}}, {{}, {ir::Type::kF64}}};
}

bool Delegate::OnError(const wabt::Error& error) {
  // Custom sections that cannot be read are skipped; their faults come as warnings.
  if (error.error_level == wabt::ErrorLevel::Error) {
    errors_.push_back(error);
  }
  return true;
}

Diagnostic Delegate::TakeFault(const std::string& place) const {
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

Result Delegate::Refuse(uint64_t offset, std::string message) {
  if (!refusal_ && errors_.empty()) {
    refusal_ = Fault("", offset, std::move(message));
  }
  return Result::Error;
}

Result Delegate::RefuseImport(std::string_view kind, std::string_view module, std::string_view name,
                              std::string_view advice) {
  return Refuse(state->offset, "The " + std::string(kind) + " import \"" + std::string(module) + "." +
                                   std::string(name) + "\" is refused: a kernel imports functions of \"hpvm\" only. " +
                                   std::string(advice));
}

std::optional<ir::Type> Delegate::TypeOf(wabt::Type type) const {
  switch (type) {
    case wabt::Type::I32:
      return ir::Type::kI32;
    case wabt::Type::I64:
      return ir::Type::kI64;
    case wabt::Type::F32:
      return ir::Type::kF32;
    case wabt::Type::F64:
      return ir::Type::kF64;
    default:
      return std::nullopt;
  }
}

Result Delegate::BeginSection(Index, wabt::BinarySection section, Offset) {
  source_ = state->offset;
  if (section == wabt::BinarySection::Tag) {
    return Refuse(source_, "The module has a tag section: exceptions are not supported.");
  }
  return Result::Ok;
}

Result Delegate::EndModule() { return validator_.EndModule(); }

Result Delegate::OnFuncType(Index index, Index param_count, wabt::Type* params, Index result_count,
                            wabt::Type* results) {
  source_ = state->offset;
  if (Failed(validator_.OnFuncType(Here(), param_count, params, result_count, results, index))) {
    return Result::Error;
  }
  ir::FunctionType type;
  for (uint64_t i = 0; i < uint64_t{param_count} + result_count; ++i) {
    const wabt::Type from = i < param_count ? params[i] : results[i - param_count];
    const std::optional<ir::Type> to = TypeOf(from);
    if (!to) {
      return Refuse(source_, "The function type " + std::to_string(index) + " has a value of the type " +
                                 from.GetName() + "; i32, i64, f32 and f64 are supported" +
                                 (from == wabt::Type::V128 ? " (a later release brings SIMD)." : "."));
    }
    (i < param_count ? type.params : type.results).push_back(*to);
  }
  if (type.params.size() > limits::kWasmSignatureMax || type.results.size() > limits::kWasmSignatureMax) {
    return Refuse(source_, "The function type " + std::to_string(index) + " has more parameters or results (" +
                               std::to_string(std::max(type.params.size(), type.results.size())) +
                               ") than the limit (" + std::to_string(limits::kWasmSignatureMax) + ").");
  }
  module_.signatures.push_back(std::move(type));
  return Result::Ok;
}

Result Delegate::OnImportFunc(Index, std::string_view module, std::string_view name, Index, Index signature) {
  source_ = state->offset;
  if (Failed(validator_.OnFunction(Here(), At(signature)))) {
    return Result::Error;
  }
  Function function;
  function.signature = kInlineSignatures + signature;
  function.import =
      ImportDecl{std::string(module.substr(0, kNameBytesMax)), std::string(name.substr(0, kNameBytesMax)), source_};
  module_.functions.push_back(std::move(function));
  return Result::Ok;
}

Result Delegate::OnImportTable(Index, std::string_view module, std::string_view name, Index, wabt::Type,
                               const wabt::Limits*) {
  return RefuseImport("table", module, name, "Link without --import-table.");
}
Result Delegate::OnImportMemory(Index, std::string_view module, std::string_view name, Index, const wabt::Limits*) {
  return RefuseImport(
      "memory", module, name,
      "Let the module declare its own memory: link with wasm-ld and without --import-memory; an object file (-c) is "
      "not a module yet.");
}
Result Delegate::OnImportGlobal(Index, std::string_view module, std::string_view name, Index, wabt::Type, bool) {
  return RefuseImport("global", module, name, "Link without -shared and -pie.");
}
Result Delegate::OnImportTag(Index, std::string_view module, std::string_view name, Index, Index) {
  return RefuseImport("tag", module, name, "Exceptions are not supported.");
}

Result Delegate::OnFunction(Index, Index signature) {
  source_ = state->offset;
  if (Failed(validator_.OnFunction(Here(), At(signature)))) {
    return Result::Error;
  }
  Function function;
  function.signature = kInlineSignatures + signature;
  module_.functions.push_back(std::move(function));
  return Result::Ok;
}

Result Delegate::OnTable(Index index, wabt::Type type, const wabt::Limits* entries) {
  source_ = state->offset;
  if (Failed(validator_.OnTable(Here(), type, *entries))) {
    return Result::Error;
  }
  if (index != 0 || type != wabt::Type::FuncRef) {
    return Refuse(source_, "The module has a table of " + type.GetName() + " with index " + std::to_string(index) +
                               "; one table of funcref is supported.");
  }
  if (entries->initial > limits::kWasmTableEntriesMax) {
    return Refuse(source_, "The table has more entries (" + std::to_string(entries->initial) + ") than the limit (" +
                               std::to_string(limits::kWasmTableEntriesMax) + ").");
  }
  module_.table_entries = entries->initial;
  return Result::Ok;
}

Result Delegate::OnMemory(Index, const wabt::Limits* pages) {
  source_ = state->offset;
  if (Failed(validator_.OnMemory(Here(), *pages))) {
    return Result::Error;
  }
  Memory memory;
  memory.pages = pages->initial;
  memory.is_64 = pages->is_64;
  memory.is_shared = pages->is_shared;
  memory.source = source_;
  if (pages->has_max) {
    memory.pages_max = pages->max;
  }
  module_.memory = memory;
  return Result::Ok;
}

Result Delegate::BeginGlobal(Index index, wabt::Type type, bool is_mutable) {
  source_ = state->offset;
  if (Failed(validator_.OnGlobal(Here(), type, is_mutable))) {
    return Result::Error;
  }
  const std::optional<ir::Type> global_type = TypeOf(type);
  if (!global_type) {
    return Refuse(source_, "The global " + std::to_string(index) + " has the type " + type.GetName() +
                               "; i32, i64, f32 and f64 are supported.");
  }
  module_.globals.push_back({.type = *global_type, .is_mutable = is_mutable});
  return Result::Ok;
}

Result Delegate::BeginGlobalInitExpr(Index) {
  const uint32_t type = static_cast<uint32_t>(module_.globals.back().type);
  constexpr wabt::Type::Enum kTypes[] = {wabt::Type::I32, wabt::Type::I64, wabt::Type::F32, wabt::Type::F64};
  return validator_.BeginInitExpr(Here(), kTypes[type]);
}
Result Delegate::EndGlobalInitExpr(Index) {
  // No global is imported, so the expression is one constant.
  module_.globals.back().init = constant_;
  return validator_.EndInitExpr();
}

Result Delegate::OnExport(Index, wabt::ExternalKind kind, Index item, std::string_view name) {
  source_ = state->offset;
  if (Failed(validator_.OnExport(Here(), kind, At(item), name))) {
    return Result::Error;
  }
  module_.exports.push_back({std::string(name), kind == wabt::ExternalKind::Func, item});
  return Result::Ok;
}

Result Delegate::OnStartFunction(Index function) {
  source_ = state->offset;
  if (Failed(validator_.OnStart(Here(), At(function)))) {
    return Result::Error;
  }
  return Refuse(source_,
                "The module has a start function (function " + std::to_string(function) +
                    "); a later release brings start functions. Link with --no-entry and without constructors.");
}

Result Delegate::BeginElemSegment(Index, Index table, uint8_t flags) {
  source_ = state->offset;
  const wabt::SegmentKind kind = KindOf(flags);
  if (Failed(validator_.OnElemSegment(Here(), At(table), kind))) {
    return Result::Error;
  }
  is_active_ = kind == wabt::SegmentKind::Active;
  module_.elems.emplace_back().source = source_;
  return Result::Ok;
}
Result Delegate::BeginElemSegmentInitExpr(Index) { return validator_.BeginInitExpr(Here(), wabt::Type::I32); }
Result Delegate::EndElemSegmentInitExpr(Index) {
  module_.elems.back().offset = static_cast<uint32_t>(constant_);
  return validator_.EndInitExpr();
}
Result Delegate::OnElemSegmentElemType(Index, wabt::Type type) {
  return validator_.OnElemSegmentElemType(Here(), type);
}
Result Delegate::OnElemSegmentElemExpr_RefNull(Index, wabt::Type type) {
  module_.elems.back().functions.push_back(kNullFunction);
  return validator_.OnElemSegmentElemExpr_RefNull(Here(), type);
}
Result Delegate::OnElemSegmentElemExpr_RefFunc(Index, Index function) {
  module_.elems.back().functions.push_back(function);
  return validator_.OnElemSegmentElemExpr_RefFunc(Here(), At(function));
}
Result Delegate::EndElemSegment(Index) {
  if (!is_active_) {
    module_.elems.pop_back();
  }
  return Result::Ok;
}

Result Delegate::OnDataCount(Index count) {
  validator_.OnDataCount(count);
  return Result::Ok;
}
Result Delegate::BeginDataSegment(Index, Index memory, uint8_t flags) {
  source_ = state->offset;
  const wabt::SegmentKind kind = KindOf(flags);
  is_active_ = kind == wabt::SegmentKind::Active;
  return validator_.OnDataSegment(Here(), At(memory), kind);
}
Result Delegate::BeginDataSegmentInitExpr(Index) {
  const bool is_64 = module_.address_type() == ir::Type::kI64;
  return validator_.BeginInitExpr(Here(), is_64 ? wabt::Type::I64 : wabt::Type::I32);
}
Result Delegate::EndDataSegmentInitExpr(Index) { return validator_.EndInitExpr(); }
Result Delegate::OnDataSegmentData(Index, const void* data, Address size) {
  if (is_active_) {
    const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(data), size);
    module_.data.push_back({.offset = constant_, .bytes = bytes, .source = source_});
  }
  return Result::Ok;
}

Result Delegate::OnModuleName(std::string_view name) {
  module_.name = name.substr(0, kNameBytesMax);
  return Result::Ok;
}
Result Delegate::OnFunctionName(Index function, std::string_view name) {
  if (function < module_.functions.size()) {
    module_.functions[function].name = name.substr(0, kNameBytesMax);
  }
  return Result::Ok;
}

std::optional<Module> ReadModule(std::span<const uint8_t> bytes, const std::string& place, Diagnostics& diagnostics) {
  // What is refused by name must be readable first; what is not enabled here wabt reports itself.
  wabt::Features features;
  features.enable_exceptions();
  features.enable_threads();
  features.enable_memory64();
  Delegate delegate(features);
  const wabt::ReadBinaryOptions options(features, /*log_stream=*/nullptr, /*read_debug_names=*/true,
                                        /*stop_on_first_error=*/true, /*fail_on_custom_section_error=*/false);
  if (Failed(wabt::ReadBinary(bytes.data(), bytes.size(), &delegate, options)) || delegate.HasFault()) {
    diagnostics.push_back(delegate.TakeFault(place));
    return std::nullopt;
  }
  return delegate.TakeModule();
}

}  // namespace hpvm::wasm
