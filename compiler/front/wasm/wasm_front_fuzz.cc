// SPDX-License-Identifier: Apache-2.0
// Any bytes give a fault or a module that verifies, both as a kernel and as a linked module.
#include <cstdint>
#include <string>

#include "base/status.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/read/reader.h"
#include "compiler/front/wasm/testing/link.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

// Returns options that fit the first exported function that could be a kernel, so that mutated modules reach the
// lowering.
WasmOptions OptionsFor(std::span<const uint8_t> bytes) {
  WasmOptions options;
  options.module_name = "fuzz";
  Diagnostics diagnostics;
  const auto module = ReadModule(bytes, "fuzz", diagnostics);
  for (size_t i = 0; module && i < module->exports.size(); ++i) {
    const Export& item = module->exports[i];
    if (item.kind != ExternKind::kFunction || !module->type_of(module->functions[item.index]).results.empty()) {
      continue;
    }
    options.entry = item.name;
    for (ir::Type type : module->type_of(module->functions[item.index]).params) {
      options.params.push_back({.name = "p", .is_buffer = type == module->address_type(), .scalar = type});
    }
    break;
  }
  return options;
}

// Links the module with imports of the types that it declares.
void Link(std::span<const uint8_t> bytes) {
  Diagnostics diagnostics;
  const auto outline = OutlineModule(bytes, diagnostics);
  HPVMD_CHECK(outline.has_value() != HasErrors(diagnostics));
  if (!outline) {
    return;
  }
  std::vector<Signature> signatures;
  Linkage linkage;
  linkage.signatures = &signatures;
  for (const ModuleImport& import : outline->imports) {
    switch (import.type.kind) {
      case ExternKind::kFunction:
        linkage.functions.push_back(1);
        break;
      case ExternKind::kTable:
        linkage.tables.push_back(kCallAreaBytes);
        linkage.table_capacities.push_back(10);
        break;
      case ExternKind::kGlobal:
        linkage.globals.push_back(kCallAreaBytes + 64);
        break;
      case ExternKind::kMemory:
        linkage.memory = import.type.limits;
        break;
    }
  }
  linkage.first_reference = 2;
  const auto linked = LinkModule(bytes, linkage, diagnostics);
  HPVMD_CHECK(linked.has_value() != HasErrors(diagnostics));
  HPVMD_CHECK(!linked || ir::Verify(linked->module).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const ReadOutcome outcome = ReadWasm(bytes, OptionsFor(bytes));
  HPVMD_CHECK(outcome.module.has_value() != HasErrors(outcome.diagnostics));
  HPVMD_CHECK(!outcome.module || ir::Verify(*outcome.module).empty());
  Link(bytes);
  return 0;
}

}  // namespace hpvm::wasm
