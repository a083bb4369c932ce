// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/imports.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/edit_distance.h"
#include "base/limits.h"
#include "compiler/front/wasm/read/fault.h"
#include "compiler/ir/text/print_format.h"
#include "compiler/math/math_module.h"

namespace hpvm::wasm {
namespace {

constexpr Import kImports[] = {
    {"instance_id", ImportShape::kQuery, Opcode::kInstanceId, Type::kI32},
    {"instance_count", ImportShape::kQuery, Opcode::kInstanceCount, Type::kI32},
    {"group_id", ImportShape::kQuery, Opcode::kGroupId, Type::kI32},
    {"group_size", ImportShape::kQuery, Opcode::kGroupSize, Type::kI32},
    {"local_id", ImportShape::kQuery, Opcode::kLocalId, Type::kI32},
    {"buffer_size", ImportShape::kQuery, Opcode::kBufferSize, Type::kI32},
    {"barrier", ImportShape::kBarrier, Opcode::kBarrier, Type::kI32},
    {"local_alloc", ImportShape::kLocalAlloc, Opcode::kLocalAlloc, Type::kI32},
    {"assert", ImportShape::kAssert, Opcode::kTrap, Type::kI32},
    {"atomic_load_i32", ImportShape::kAtomicLoad, Opcode::kAtomicLoad, Type::kI32},
    {"atomic_load_i64", ImportShape::kAtomicLoad, Opcode::kAtomicLoad, Type::kI64},
    {"atomic_store_i32", ImportShape::kAtomicStore, Opcode::kAtomicStore, Type::kI32},
    {"atomic_store_i64", ImportShape::kAtomicStore, Opcode::kAtomicStore, Type::kI64},
    {"atomic_add_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicAdd, Type::kI32},
    {"atomic_add_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicAdd, Type::kI64},
    {"atomic_add_f32", ImportShape::kAtomicUpdate, Opcode::kAtomicFAdd, Type::kF32},
    {"atomic_add_f64", ImportShape::kAtomicUpdate, Opcode::kAtomicFAdd, Type::kF64},
    {"atomic_sub_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicSub, Type::kI32},
    {"atomic_sub_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicSub, Type::kI64},
    {"atomic_and_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicAnd, Type::kI32},
    {"atomic_and_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicAnd, Type::kI64},
    {"atomic_or_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicOr, Type::kI32},
    {"atomic_or_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicOr, Type::kI64},
    {"atomic_xor_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicXor, Type::kI32},
    {"atomic_xor_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicXor, Type::kI64},
    {"atomic_xchg_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicXchg, Type::kI32},
    {"atomic_xchg_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicXchg, Type::kI64},
    {"atomic_min_s_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicMinS, Type::kI32},
    {"atomic_min_s_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicMinS, Type::kI64},
    {"atomic_min_u_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicMinU, Type::kI32},
    {"atomic_min_u_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicMinU, Type::kI64},
    {"atomic_max_s_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicMaxS, Type::kI32},
    {"atomic_max_s_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicMaxS, Type::kI64},
    {"atomic_max_u_i32", ImportShape::kAtomicUpdate, Opcode::kAtomicMaxU, Type::kI32},
    {"atomic_max_u_i64", ImportShape::kAtomicUpdate, Opcode::kAtomicMaxU, Type::kI64},
    {"atomic_cmpxchg_i32", ImportShape::kAtomicCompare, Opcode::kAtomicCmpxchg, Type::kI32},
    {"atomic_cmpxchg_i64", ImportShape::kAtomicCompare, Opcode::kAtomicCmpxchg, Type::kI64},
    {"abort", ImportShape::kAbort, Opcode::kTrap, Type::kI32},
    {"print", ImportShape::kPrint, Opcode::kPrint, Type::kI32},
};

// One row per function of the math library, in the library's order.
const std::vector<Import>& MathImports() {
  static const auto* const kRows = [] {
    auto* rows = new std::vector<Import>;
    for (const math::MathFunction& function : math::MathFunctions()) {
      rows->push_back({function.name, ImportShape::kMath, Opcode::kCall, function.is_f64 ? Type::kF64 : Type::kF32,
                       function.arguments, static_cast<uint32_t>(rows->size())});
    }
    return rows;
  }();
  return *kRows;
}

constexpr size_t kNameBytesMax = 64;  // Longer names are not compared: the edit distance takes time proportional to
                                      // the product of both lengths.
constexpr size_t kNearNamesMax = 3;

void AddNear(std::string_view name, std::span<const Import> imports,
             std::vector<std::pair<size_t, std::string_view>>* near) {
  for (const Import& import : imports) {
    const size_t distance = EditDistance(name, import.name);
    if (distance <= std::max<size_t>(3, name.size() / 3) && import.shape != ImportShape::kAbort) {
      near->emplace_back(distance, import.name);
    }
  }
}

std::string NearNames(std::string_view name) {
  if (name.starts_with("hpvm_")) {
    name.remove_prefix(5);
  }
  std::vector<std::pair<size_t, std::string_view>> near;
  if (name.size() <= kNameBytesMax) {
    AddNear(name, kImports, &near);
    AddNear(name, MathImports(), &near);
  }
  std::ranges::sort(near);
  near.resize(std::min(near.size(), kNearNamesMax));
  std::string text;
  for (const auto& [distance, near_name] : near) {
    text += text.empty() ? " Near names are " : ", ";
    text += near_name;
  }
  return text.empty() ? " The functions of \"hpvm\" are those of client/kernel/hpvm.h." : text + ".";
}

// Returns the name in hpvm.h of a function that C calls "sinf" or "sin"; empty when the math library has none.
std::string MathName(std::string_view name) {
  const auto find = [](std::string_view stem, const char* type) {
    const Import* import = FindImport(std::string(stem) + type);
    return import != nullptr && import->shape == ImportShape::kMath ? "hpvm_" + std::string(import->name) : "";
  };
  std::string found = find(name, "_f64");
  return found.empty() && name.ends_with('f') ? find(name.substr(0, name.size() - 1), "_f32") : found;
}

std::string Advice(const ImportDecl& declaration) {
  if (declaration.module == "wasi_snapshot_preview1" || declaration.module == "wasi_unstable") {
    return " A kernel has no operating system; build it with -nostdlib and without WASI.";
  }
  if (declaration.module != "env") {
    return " The only module to import from is \"hpvm\".";
  }
  const std::string math = MathName(declaration.name);
  return " It is an undefined symbol of the kernel's sources: " +
         (math.empty() ? "define the function, link the library that has it, or include hpvm.h for the functions of "
                         "\"hpvm\"."
                       : "hpvm.h has it as " + math + ".");
}

// Traps when the condition is 0.
void EmitAssert(ir::ValueId condition, uint32_t source, ir::Builder& builder) {
  const ir::OpId check = builder.BeginIf(condition, {}, source);
  builder.Leave(check, {});
  builder.Else();
  builder.Trap(ir::TrapCode::kAssert, source);
  builder.End();
}

// Returns the bits of the constant that defines the value, if one does. The operations of a function under
// construction are in the order of their results.
std::optional<uint64_t> ConstantOf(const ir::Function& function, ir::ValueId value) {
  const auto after =
      std::ranges::upper_bound(function.ops, value.index, {}, [](const ir::Op& op) { return op.first_result.index; });
  if (after == function.ops.begin()) {
    return std::nullopt;
  }
  const ir::Op& op = *std::prev(after);
  if (op.code != Opcode::kConst || op.first_result != value) {
    return std::nullopt;
  }
  return op.imm;
}

uint32_t FormatIndex(std::string text, std::vector<std::string>& formats) {
  const auto found = std::ranges::find(formats, text);
  const auto index = static_cast<uint32_t>(found - formats.begin());
  if (found == formats.end()) {
    formats.push_back(std::move(text));
  }
  return index;
}

// Reads the format string at the address; returns nothing after a fault.
std::optional<ir::PrintFormat> ReadFormat(ImportContext& context, std::optional<uint64_t> address, uint32_t source) {
  const auto fail = [&](std::string message) {
    if (context.diagnostics.size() < limits::kDiagnosticsMax) {
      context.diagnostics.push_back(Fault(context.place, source, std::move(message)));
    }
    return std::nullopt;
  };
  if (!address) {
    return fail(
        "The format of a print is not known at compile time. Pass a string literal to hpvm_print itself: make a "
        "function around it a macro, and choose between literals with an if around two calls.");
  }
  const auto text = ir::FindLiteral(context.out.data, *address, limits::kPrintFormatBytesMax);
  if (!text) {
    return fail("The format of a print, at address " + std::to_string(*address) +
                " of module memory, is not a string in the initial data that ends within " +
                std::to_string(limits::kPrintFormatBytesMax) + " bytes. Pass a string literal.");
  }
  if (context.out.formats.size() >= limits::kPrintFormatsMax) {
    return fail("The kernel prints with more formats than the limit (" + std::to_string(limits::kPrintFormatsMax) +
                ").");
  }
  StatusOr<ir::PrintFormat> format = ir::ParsePrintFormat(*text, context.out.is_memory64);
  if (!format.ok()) {
    return fail(std::string(format.status().message()));
  }
  return *std::move(format);
}

// The arguments lie as C passes them: each at the next multiple of its size.
void EmitPrint(ImportContext& context, std::span<const ir::ValueId> operands, uint32_t source, ir::Function& function,
               ir::Builder& builder) {
  std::optional<ir::PrintFormat> format = ReadFormat(context, ConstantOf(function, operands[0]), source);
  if (!format) {
    return;
  }
  std::vector<ir::ValueId> values;
  uint64_t at = 0;
  for (const Type type : format->operands) {
    const uint32_t bytes = ir::Bytes(type);
    at = (at + bytes - 1) / bytes * bytes;
    ir::Op load{.code = Opcode::kLoad, .type = type, .width = static_cast<uint8_t>(bytes), .imm = at, .source = source};
    values.push_back(builder.Append1(load, operands.subspan(1, 1), type));
    at += bytes;
  }
  ir::Op print{
      .code = Opcode::kPrint, .imm = FormatIndex(std::move(format->text), context.out.formats), .source = source};
  builder.Append(print, values, {});
}

// Returns the device operation when the form passes its argument to another function, and that function's result to
// an operation of the device. Sine and cosine are such forms, and share the function.
const ir::Op* OperationOf(const ir::Function& form) {
  const std::vector<ir::OpId>& ops = form.region(form.body).ops;
  if (ops.size() != 3 || form.op(ops[0]).code != Opcode::kCall) {
    return nullptr;
  }
  const ir::Op& operation = form.op(ops[1]);
  return ir::Info(operation.code).family == ir::Family::kApprox ? &operation : nullptr;
}

// Emits a call of such a form. Its function is called once for all forms that share it and the argument.
ir::ValueId EmitHandedOn(ImportContext& context, const ir::Function& form, std::span<const ir::ValueId> operands,
                         uint32_t source, const ir::Function& function, ir::Builder& builder) {
  if (context.caller != &function) {
    context.caller = &function;
    context.calls.clear();
  }
  ir::Op call = form.op(form.region(form.body).ops[0]);
  call.source = source;
  const auto key = std::pair(static_cast<uint32_t>(call.imm), operands[0].index);
  const auto found = context.calls.find(key);
  const bool is_there =
      found != context.calls.end() && std::ranges::find(builder.open(), found->second.region) != builder.open().end();
  const ir::ValueId handed = is_there ? found->second.result : builder.Append1(call, operands, Type::kF32);
  if (!is_there) {
    context.calls.insert_or_assign(key, ImportContext::Call{builder.open().back(), handed});
  }
  ir::Op operation = *OperationOf(form);
  operation.source = source;
  return builder.Append1(operation, std::array{handed}, Type::kF32);
}

}  // namespace

const Import* FindImport(std::string_view name) {
  static const auto* const kByName = [] {
    auto* map = new std::unordered_map<std::string_view, const Import*>;
    for (const std::span<const Import> imports : {std::span<const Import>(kImports), std::span(MathImports())}) {
      for (const Import& import : imports) {
        map->emplace(import.name, &import);
      }
    }
    return map;
  }();
  const auto found = kByName->find(name);
  return found == kByName->end() ? nullptr : found->second;
}

ir::FunctionType ImportType(const Import& import, Type address, const ir::FunctionType& declared) {
  const Type type = import.type;
  switch (import.shape) {
    case ImportShape::kQuery: {
      const bool is_wide = declared.results.size() == 1 && declared.results[0] == Type::kI64;
      return {{Type::kI32}, {is_wide ? Type::kI64 : Type::kI32}};
    }
    case ImportShape::kBarrier:
      return {};
    case ImportShape::kLocalAlloc:
      return {{address}, {address}};
    case ImportShape::kAtomicLoad:
      return {{address}, {type}};
    case ImportShape::kAtomicStore:
      return {{address, type}, {}};
    case ImportShape::kAtomicUpdate:
      return {{address, type}, {type}};
    case ImportShape::kAtomicCompare:
      return {{address, type, type}, {type}};
    case ImportShape::kAssert:
      return {{Type::kI32}, {}};
    case ImportShape::kAbort:
      return {{Type::kI32, Type::kI32, Type::kI32, Type::kI32}, {}};
    case ImportShape::kPrint:
      return {{address, address}, {}};
    case ImportShape::kMath:
      return {std::vector<Type>(import.arguments, type), {type}};
  }
  return {};
}

std::string CheckImport(const ImportDecl& declaration, const ir::FunctionType& declared, Type address_type) {
  const std::string what = "The import \"" + declaration.module + "." + declaration.name + "\"";
  const Import* import = FindImport(declaration.name);
  const bool is_abort = import != nullptr && import->shape == ImportShape::kAbort;
  if (declaration.module != "hpvm" && !(is_abort && declaration.module == "env")) {
    return what + " does not exist." + Advice(declaration);
  }
  if (import == nullptr || (is_abort && declaration.module == "hpvm")) {
    return what + " does not exist." + NearNames(declaration.name);
  }
  const ir::FunctionType wanted = ImportType(*import, address_type, declared);
  if (declared != wanted) {
    return what + " is declared as " + ToString(declared) + "; its type is " + ToString(wanted) + ".";
  }
  return "";
}

ir::ValueId EmitImport(ImportContext& context, const Import& import, const ir::FunctionType& type,
                       std::span<const ir::ValueId> operands, uint32_t source, ir::Function& function,
                       ir::Builder& builder) {
  switch (import.shape) {
    case ImportShape::kAssert:
      EmitAssert(operands[0], source, builder);
      return {};
    case ImportShape::kAbort:
      EmitAssert(builder.Const(Type::kI32, 0), source, builder);
      return {};
    case ImportShape::kPrint:
      EmitPrint(context, operands, source, function, builder);
      return {};
    default:
      break;
  }
  ir::Op op{.code = import.opcode, .type = import.type, .source = source};
  if (import.shape == ImportShape::kMath) {
    const ir::Function& form = context.out.function(context.math[import.math]);
    if (OperationOf(form) != nullptr) {
      return EmitHandedOn(context, form, operands, source, function, builder);
    }
    op.type = Type::kI32;
    op.imm = context.math[import.math].index;
  } else if (import.shape == ImportShape::kQuery) {
    op.type = type.results[0];
  } else if (ir::Info(op.code).family == ir::Family::kAtomic) {
    op.width = static_cast<uint8_t>(ir::Bytes(op.type));
  }
  const ir::OpId id = builder.Append(op, operands, type.results);
  const std::vector<ir::ValueId> results = builder.Results(id);
  return results.empty() ? ir::ValueId() : results[0];
}

}  // namespace hpvm::wasm
