// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/wasm_front.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/limits.h"
#include "compiler/front/wasm/entry.h"
#include "compiler/front/wasm/lower/layout.h"
#include "compiler/front/wasm/lower/lower.h"
#include "compiler/front/wasm/lower/math.h"
#include "compiler/front/wasm/lower/memory.h"
#include "compiler/front/wasm/lower/reach.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/read/fault.h"
#include "compiler/front/wasm/read/imports.h"
#include "compiler/front/wasm/read/reader.h"
#include "compiler/front/wasm/start.h"

namespace hpvm::wasm {
namespace {

std::string NameOf(const Module& module, uint32_t index, const WasmOptions& options, bool is_entry) {
  const Function& function = module.functions[index];
  if (!function.name.empty()) {
    return function.name;
  }
  if (is_entry) {
    return options.entry;
  }
  return function.import ? function.import->name : "function " + std::to_string(index);
}

struct Reading {
  const Module& module;
  const WasmOptions& options;
  const std::string& place;
  Diagnostics& diagnostics;
};

// Start functions run in the interpreter with exact forms.
MathForms FormsFor(const WasmOptions& options, bool is_start) {
  return !options.fast_math || is_start ? MathForms::kExact
         : options.device_math          ? MathForms::kDevice
                                        : MathForms::kFast;
}

// Lowers the functions of `reach` and those that they call in other modules. `out` already has its data and state.
bool LowerAll(const Reading& reading, const Layout& layout, const Reach& reach, bool is_start, ir::Module& out) {
  const Module& module = reading.module;
  out.functions.resize(reach.order.size());
  ImportContext imports{out, AppendMath(reach.math, FormsFor(reading.options, is_start), out), reading.place,
                        reading.diagnostics};
  LowerContext context{.module = module,
                       .layout = layout,
                       .ids = reach.ids,
                       .types = reach.types,
                       .has_no_launch = is_start,
                       .imports = &imports,
                       .values_left = limits::kKernelIrValuesMax,
                       .table_functions = {.next = static_cast<uint32_t>(out.functions.size())}};
  for (size_t i = 0; i < reach.order.size(); ++i) {
    const Function& function = module.functions[reach.order[i]];
    ir::Function& lowered = out.functions[i];
    lowered.name = NameOf(module, reach.order[i], reading.options, i == 0 && !is_start);
    lowered.type = module.type_of(function);
    if (!LowerFunction(context, function, lowered)) {
      return false;
    }
  }
  context.table_functions.AppendTo(out);
  for (const uint32_t function : reach.references) {
    out.references.push_back({reach.ids[function], reach.types[module.functions[function].signature]});
  }
  for (const uint32_t signature : reach.type_order) {
    out.reference_types.push_back(module.types[signature]);
  }
  out.uses_barrier = reach.uses_barrier && !is_start;
  out.uses_group_memory = reach.uses_group_memory && !is_start;
  out.entry = ir::FunctionId(0u);
  return true;
}

bool LowerKernel(const Reading& reading, const Layout& layout, const Reach& reach, bool is_start, ir::Module& out) {
  if (!LowerAll(reading, layout, reach, is_start, out)) {
    reading.diagnostics.push_back(Fault(reading.place, std::nullopt,
                                        "The kernel needs more values in the kernel IR than the limit (" +
                                            std::to_string(limits::kKernelIrValuesMax) + ")."));
  }
  return !HasErrors(reading.diagnostics);
}

// Runs the start function on `out`, which already has its memory and state. `reach` covers the entry and the start
// function.
bool ApplyStart(const Reading& reading, const Layout& layout, const Reach& reach, ir::Module& out) {
  ir::Module start = out;
  start.params.clear();
  if (!LowerKernel(reading, layout, reach, /*is_start=*/true, start)) {
    return false;
  }
  start.entry = reach.ids[*reading.module.start];
  return RunStart(reading.module, std::move(start), reading.place, out, reading.diagnostics);
}

// Reads everything except the name and the parameters. Returns false after a diagnostic.
bool ReadKernel(const Reading& reading, uint32_t entry, ir::Module& out) {
  const Module& module = reading.module;
  std::vector<uint32_t> roots = {entry};
  if (module.start) {
    roots.push_back(*module.start);
  }
  Reach reach = Walk(module, roots, {});
  const Layout layout = LayOutKernel(module, reach, reading.place, out, reading.diagnostics);
  AssembleMemory(module, reach.grows_memory, reading.place, out, reading.diagnostics);
  if (HasErrors(reading.diagnostics)) {
    return false;
  }
  if (module.start) {
    if (!ApplyStart(reading, layout, reach, out)) {
      return false;
    }
    // Keeps only what the entry reaches; the references keep their numbers.
    const std::vector<uint32_t> references = std::move(reach.references);
    reach = Walk(module, std::array{entry}, {});
    if (reach.UsesState()) {
      reach = Walk(module, std::array{entry}, references);
    } else {
      out.state_bytes = 0;
      out.state.clear();
      out.passive_segments.clear();
    }
    out.memory_bytes_max = reach.grows_memory ? out.memory_bytes_max : out.memory_bytes;
  }
  if (module.stack_pointer) {
    out.stack_pointer = layout.globals[*module.stack_pointer];
  }
  return LowerKernel(reading, layout, reach, /*is_start=*/false, out);
}

void RefuseImport(const std::string& kind, const ImportDecl& import, const std::string& advice,
                  const std::string& place, Diagnostics& diagnostics) {
  diagnostics.push_back(Fault(place, import.source,
                              "The " + kind + " import \"" + import.module + "." + import.name +
                                  "\" is refused: a kernel imports functions of \"hpvm\" only. " + advice));
}

bool IsPlain(const Signature& signature) {
  const auto is_plain = [](ValueType type) { return type <= ValueType::kF64; };
  return std::ranges::all_of(signature.params, is_plain) && std::ranges::all_of(signature.results, is_plain);
}

void CheckImports(const Module& module, const std::string& place, Diagnostics& diagnostics) {
  for (const Function& function : module.functions) {
    if (!function.import || diagnostics.size() >= limits::kDiagnosticsMax) {
      break;  // Imports come first.
    }
    std::string fault = CheckImport(*function.import, module.type_of(function), module.address_type());
    if (fault.empty() && !IsPlain(module.signature_of(function))) {
      fault = "The import \"" + function.import->module + "." + function.import->name + "\" is declared as " +
              ToString(module.signature_of(function)) + "; no function of \"hpvm\" has vectors or references.";
    }
    if (!fault.empty()) {
      diagnostics.push_back(Fault(place, function.import->source, std::move(fault)));
    }
  }
  if (module.memory && module.memory->import) {
    RefuseImport("memory", *module.memory->import,
                 "Let the module declare its own memory: link with wasm-ld and without --import-memory; an object file "
                 "(-c) is not a module yet.",
                 place, diagnostics);
  }
  if (!module.tables.empty() && module.tables[0].import) {
    RefuseImport("table", *module.tables[0].import, "Link without --import-table.", place, diagnostics);
  }
  if (!module.globals.empty() && module.globals[0].import) {
    RefuseImport("global", *module.globals[0].import, "Link without -shared and -pie.", place, diagnostics);
  }
}

// Returns the entry's own signature as parameters; FindEntry refuses types that parameters cannot express.
std::vector<ParamSpec> AnyParams(const Module& module, const std::string& entry) {
  std::vector<ParamSpec> params;
  for (const Export& item : module.exports) {
    if (item.name != entry || item.kind != ExternKind::kFunction) {
      continue;
    }
    for (const ValueType type : module.signature_of(module.functions[item.index]).params) {
      constexpr std::pair<ValueType, ir::Type> kTypes[] = {
          {ValueType::kI64, ir::Type::kI64}, {ValueType::kF32, ir::Type::kF32}, {ValueType::kF64, ir::Type::kF64}};
      ParamSpec& param = params.emplace_back();
      param.name = "p" + std::to_string(params.size() - 1);
      for (const auto& [declared, scalar] : kTypes) {
        param.scalar = type == declared ? scalar : param.scalar;
      }
      param.is_buffer = param.scalar == module.address_type();
    }
  }
  return params;
}

}  // namespace

ReadOutcome ReadWasm(std::span<const uint8_t> bytes, const WasmOptions& given) {
  WasmOptions options = given;
  const std::string place = "module \"" + options.module_name + "\"";
  ReadOutcome outcome;
  Diagnostics& diagnostics = outcome.diagnostics;
  if (bytes.size() > limits::kModuleBytesMax) {
    diagnostics.push_back(Fault(place, std::nullopt,
                                "The module (" + std::to_string(bytes.size()) + " bytes) is larger than the limit (" +
                                    std::to_string(limits::kModuleBytesMax) + " bytes)."));
    return outcome;
  }
  const std::optional<Module> module = ReadModule(bytes, place, diagnostics);
  if (!module) {
    return outcome;
  }
  CheckImports(*module, place, diagnostics);
  if (options.takes_any_params) {
    options.params = AnyParams(*module, options.entry);
  }
  const std::optional<uint32_t> entry = FindEntry(*module, options, place, diagnostics);
  if (!entry || HasErrors(diagnostics)) {
    return outcome;
  }
  ir::Module out;
  out.name = module->name.empty() ? options.module_name : module->name;
  out.params = EntryParams(*module, options);
  if (!ReadKernel({*module, options, place, diagnostics}, *entry, out)) {
    return outcome;
  }
  if (options.abi == Abi::kHpvmWeb) {
    out.entry = WrapHpvmWeb(out.entry, out);
  }
  outcome.module = std::move(out);
  return outcome;
}

}  // namespace hpvm::wasm
