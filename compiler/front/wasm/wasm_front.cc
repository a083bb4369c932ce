// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/wasm_front.h"

#include <utility>

#include "base/limits.h"
#include "compiler/front/wasm/decoded.h"
#include "compiler/front/wasm/entry.h"
#include "compiler/front/wasm/fault.h"
#include "compiler/front/wasm/imports.h"
#include "compiler/front/wasm/lower.h"
#include "compiler/front/wasm/memory.h"
#include "compiler/front/wasm/narrow_table.h"
#include "compiler/front/wasm/reader.h"

namespace hpvm {
namespace wasm {

std::string ToString(const ir::FunctionType& type) {
  const auto list = [](const std::vector<ir::Type>& types) {
    constexpr size_t kListedMax = 32;
    std::string text = "(";
    for (size_t i = 0; i < types.size() && i < kListedMax; ++i) {
      text += (i == 0 ? "" : ", ") + std::string(ir::Name(types[i]));
    }
    return text + (types.size() > kListedMax ? ", ...)" : ")");
  };
  return list(type.params) + " -> " + list(type.results);
}

namespace {

// What the entry can reach, and the ids that it gets: in order of discovery, the entry first.
struct Reach {
  std::vector<ir::FunctionId> ids;       // By function index.
  std::vector<uint32_t> order;           // Function indices.
  std::vector<uint32_t> indirect_types;  // By signature; kNoType when unused.
  std::vector<uint32_t> indirect_order;  // Signatures.
  bool calls_table = false;
  bool grows_memory = false;
  bool uses_barrier = false;
  bool uses_group_memory = false;
};
constexpr uint32_t kNoType = 0xffffffffu;

class Walk {
 public:
  Walk(const Module& module, const std::vector<uint32_t>& table) : module_(module), table_(table) {
    reach_.ids.resize(module.functions.size());
    reach_.indirect_types.resize(module.signatures.size(), kNoType);
  }

  Reach From(uint32_t entry) && {
    Add(entry);
    for (size_t next = 0; next < reach_.order.size(); ++next) {
      const Function& function = module_.functions[reach_.order[next]];
      if (function.import) {
        Use(*function.import);
      }
      for (const Instr& instr : function.code) {
        Visit(instr);
      }
    }
    return std::move(reach_);
  }

 private:
  void Add(uint32_t index) {
    if (!reach_.ids[index].valid()) {
      reach_.ids[index] = ir::FunctionId(reach_.order.size());
      reach_.order.push_back(index);
    }
  }

  void Use(const ImportDecl& import) {
    const ImportShape shape = FindImport(import.name)->shape;
    reach_.uses_barrier |= shape == ImportShape::kBarrier;
    reach_.uses_group_memory |= shape == ImportShape::kLocalAlloc;
  }

  void Visit(const Instr& instr) {
    if (instr.kind == InstrKind::kCall) {
      const std::optional<ImportDecl>& import = module_.functions[instr.imm].import;
      import ? Use(*import) : Add(static_cast<uint32_t>(instr.imm));
    } else if (instr.kind == InstrKind::kCallIndirect) {
      uint32_t& type = reach_.indirect_types[instr.imm];
      if (type == kNoType) {
        type = static_cast<uint32_t>(reach_.indirect_order.size());
        reach_.indirect_order.push_back(static_cast<uint32_t>(instr.imm));
      }
      if (!std::exchange(reach_.calls_table, true)) {
        for (uint32_t function : table_) {
          if (function != kNullFunction) {
            Add(function);
          }
        }
      }
    } else if (instr.kind == InstrKind::kPlain && instr.opcode == ir::Opcode::kMemoryGrow) {
      reach_.grows_memory = true;
    }
  }

  const Module& module_;
  const std::vector<uint32_t>& table_;
  Reach reach_;
};

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

bool LowerAll(const Module& module, const Reach& reach, const WasmOptions& options, ir::Module& out) {
  LowerContext context{module, reach.ids, reach.indirect_types, limits::kKernelIrValuesMax};
  out.functions.resize(reach.order.size());
  for (size_t i = 0; i < reach.order.size(); ++i) {
    const Function& function = module.functions[reach.order[i]];
    ir::Function& lowered = out.functions[i];
    lowered.name = NameOf(module, reach.order[i], options, i == 0);
    lowered.type = module.type_of(function);
    if (!LowerFunction(context, function, lowered)) {
      return false;
    }
  }
  return true;
}

void CheckImports(const Module& module, const std::string& place, Diagnostics& diagnostics) {
  for (const Function& function : module.functions) {
    if (!function.import || diagnostics.size() >= limits::kDiagnosticsMax) {
      break;  // Imports come first.
    }
    std::string fault = CheckImport(*function.import, module.type_of(function), module.address_type());
    if (!fault.empty()) {
      diagnostics.push_back(Fault(place, function.import->source, std::move(fault)));
    }
  }
}

ir::Module Assemble(const Module& module, const Reach& reach, const std::vector<uint32_t>& table,
                    const WasmOptions& options) {
  ir::Module out;
  out.name = module.name.empty() ? options.module_name : module.name;
  out.globals = module.globals;
  for (uint32_t signature : reach.indirect_order) {
    out.indirect_types.push_back(module.signatures[signature]);
  }
  for (uint32_t function : reach.calls_table ? table : std::vector<uint32_t>()) {
    out.table.push_back({function == kNullFunction ? ir::FunctionId() : reach.ids[function]});
  }
  out.params = EntryParams(module, options);
  out.entry = ir::FunctionId(0u);
  out.uses_barrier = reach.uses_barrier;
  out.uses_group_memory = reach.uses_group_memory;
  return out;
}

}  // namespace
}  // namespace wasm

ReadOutcome ReadWasm(std::span<const uint8_t> bytes, const WasmOptions& options) {
  const std::string place = "module \"" + options.module_name + "\"";
  ReadOutcome outcome;
  Diagnostics& diagnostics = outcome.diagnostics;
  if (bytes.size() > limits::kModuleBytesMax) {
    diagnostics.push_back(wasm::Fault(place, std::nullopt,
                                      "The module (" + std::to_string(bytes.size()) +
                                          " bytes) is larger than the limit (" +
                                          std::to_string(limits::kModuleBytesMax) + " bytes)."));
    return outcome;
  }
  const std::vector<uint8_t> narrowed = wasm::NarrowTable(bytes);  // Lives as long as the data segments in it.
  const std::optional<wasm::Module> module =
      wasm::ReadModule(narrowed.empty() ? bytes : std::span<const uint8_t>(narrowed), place, diagnostics);
  if (!module) {
    return outcome;
  }
  wasm::CheckImports(*module, place, diagnostics);
  const std::vector<uint32_t> table = wasm::AssembleTable(*module, place, diagnostics);
  const std::optional<uint32_t> entry = wasm::FindEntry(*module, options, place, diagnostics);
  if (!entry || HasErrors(diagnostics)) {
    return outcome;
  }
  const wasm::Reach reach = wasm::Walk(*module, table).From(*entry);
  ir::Module out = wasm::Assemble(*module, reach, table, options);
  wasm::AssembleMemory(*module, reach.grows_memory, place, out, diagnostics);
  if (HasErrors(diagnostics)) {
    return outcome;
  }
  if (!wasm::LowerAll(*module, reach, options, out)) {
    diagnostics.push_back(wasm::Fault(place, std::nullopt,
                                      "The kernel needs more values in the kernel IR than the limit (" +
                                          std::to_string(limits::kKernelIrValuesMax) + ")."));
    return outcome;
  }
  if (options.abi == Abi::kHpvmWeb) {
    out.entry = wasm::WrapHpvmWeb(out.entry, out);
  }
  outcome.module = std::move(out);
  return outcome;
}

}  // namespace hpvm
