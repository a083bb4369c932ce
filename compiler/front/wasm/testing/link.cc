// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/testing/link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/limits.h"
#include "base/status.h"
#include "compiler/front/wasm/lower/layout.h"
#include "compiler/front/wasm/lower/lower.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/read/fault.h"
#include "compiler/front/wasm/read/reader.h"
#include "compiler/front/wasm/testing/link_entry.h"

namespace hpvm::wasm {
namespace {

constexpr uint64_t kPageBytes = 64 * limits::kKiB;
constexpr uint64_t kGlobalBytes = 16;
constexpr uint64_t kWordBytes = 4;
constexpr char kPlace[] = "the module";
// Growth that other modules get in an exported table that has no maximum and that its own module does not grow.
constexpr uint64_t kImporterGrowth = 1'024;

ExternType TypeOf(const Module& module, const Function& function) {
  return {.kind = ExternKind::kFunction, .signature = module.signature_of(function), .limits = {}};
}
ExternType TypeOf(const Table& table) {
  return {.kind = ExternKind::kTable, .signature = {}, .value = table.type, .limits = table.limits};
}
ExternType TypeOf(const Memory& memory) {
  return {.kind = ExternKind::kMemory, .signature = {}, .limits = memory.limits};
}
ExternType TypeOf(const Global& global) {
  return {.kind = ExternKind::kGlobal,
          .signature = {},
          .value = global.type,
          .is_mutable = global.is_mutable,
          .limits = {}};
}

class Linker {
 public:
  Linker(const Module& module, const Linkage& linkage, Diagnostics& diagnostics)
      : module_(module), linkage_(linkage), diagnostics_(diagnostics), end_(linkage.state_begin) {}

  std::optional<LinkedModule> Link() {
    Memory();
    Functions();
    Globals();
    Tables();
    Segments();
    if (end_ > kStoreStateBytes) {
      diagnostics_.push_back(Fault(kPlace, std::nullopt,
                                   "The tables, globals and segments of the modules need more bytes (" +
                                       std::to_string(end_) + ") than the store has (" +
                                       std::to_string(kStoreStateBytes) + ")."));
    }
    if (HasErrors(diagnostics_)) {
      return std::nullopt;
    }
    FillState();
    if (!Lower()) {
      diagnostics_.push_back(Fault(kPlace, std::nullopt,
                                   "The module needs more values in the kernel IR than the limit (" +
                                       std::to_string(limits::kKernelIrValuesMax) + ")."));
      return std::nullopt;
    }
    return std::move(result_);
  }

 private:
  uint32_t Take(uint64_t bytes, uint64_t alignment) {
    const uint64_t at = (end_ + alignment - 1) / alignment * alignment;
    end_ = at + bytes;
    return static_cast<uint32_t>(at);  // Checked against kStoreStateBytes at the end.
  }

  void Memory() {
    ir::Module& out = result_.module;
    if (!module_.memory) {
      return;
    }
    constexpr uint64_t kPagesMax = limits::kModuleMemoryBytesMax / kPageBytes;
    const SizeLimits& size = linkage_.memory ? *linkage_.memory : module_.memory->limits;
    const uint64_t pages_max = std::min({size.maximum.value_or(kPagesMax), linkage_.memory_pages_max, kPagesMax});
    if (size.initial > pages_max) {
      diagnostics_.push_back(Fault(kPlace, module_.memory->source,
                                   "The module's memory (" + std::to_string(size.initial) +
                                       " pages of 64 KiB) is larger than the limit (" + std::to_string(pages_max) +
                                       " pages)."));
    }
    out.is_memory64 = module_.memory->limits.is_64;
    out.memory_bytes = std::min(size.initial, pages_max) * kPageBytes;
    out.memory_bytes_max = pages_max * kPageBytes;
  }

  // Returns the same index for equal signatures of all modules.
  uint32_t TypeIndex(const Signature& signature) {
    std::vector<Signature>& known = *linkage_.signatures;
    const auto found = std::find(known.begin(), known.end(), signature);
    const auto index = static_cast<uint32_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(signature);
    }
    return index;
  }

  void Functions() {
    for (const Signature& signature : module_.signatures) {
      types_.push_back(TypeIndex(signature));
    }
    ir::Module& out = result_.module;
    for (const Signature& signature : *linkage_.signatures) {
      out.reference_types.push_back(IrType(signature));
    }
    out.first_reference = linkage_.first_reference;
    out.is_linked = true;
    for (const Function& function : module_.functions) {
      const size_t index = ids_.size();
      if (function.import) {
        ids_.emplace_back();
        result_.functions.push_back(linkage_.functions[index]);
        continue;
      }
      const ir::FunctionId id(out.references.size());
      ids_.push_back(id);
      result_.functions.push_back(linkage_.first_reference + id.index);
      out.references.push_back({id, types_[function.signature]});
    }
    layout_.references = result_.functions;
  }

  void Globals() {
    for (const Global& global : module_.globals) {
      const size_t index = layout_.globals.size();
      layout_.globals.push_back(global.import ? linkage_.globals[index] : Take(kGlobalBytes, kGlobalBytes));
    }
    layout_.has_globals_in_state = true;
    result_.globals = layout_.globals;
  }

  bool HasTableGrow(size_t table) const {
    return std::any_of(module_.functions.begin(), module_.functions.end(), [&](const Function& function) {
      return std::any_of(function.code.begin(), function.code.end(),
                         [&](const Instr& instr) { return instr.kind == InstrKind::kTableGrow && instr.imm == table; });
    });
  }

  void Tables() {
    for (size_t i = 0; i < module_.tables.size(); ++i) {
      const Table& table = module_.tables[i];
      TableLayout& place = layout_.tables.emplace_back();
      if (table.import) {
        place.offset = linkage_.tables[i];
        place.capacity = linkage_.table_capacities[i];
      } else {
        const uint64_t room = HasTableGrow(i) ? kLinkedTableEntriesMax : table.limits.initial + kImporterGrowth;
        const uint64_t capacity = std::max(table.limits.initial, std::min(table.limits.maximum.value_or(room), room));
        place.offset = Take(kWordBytes * (1 + capacity), kWordBytes);
        place.capacity = static_cast<uint32_t>(capacity);
      }
      result_.tables.push_back(place.offset);
      result_.table_capacities.push_back(place.capacity);
    }
  }

  void Segments() {
    for (const ElemSegment& segment : module_.elems) {
      TableLayout& place = layout_.elems.emplace_back();
      place.capacity = segment.mode == SegmentMode::kDeclared ? 0 : static_cast<uint32_t>(segment.functions.size());
      place.offset = Take(kWordBytes * (1 + uint64_t{place.capacity}), kWordBytes);
    }
    for (const DataSegment& segment : module_.data) {
      layout_.data.push_back(static_cast<uint32_t>(result_.module.passive_segments.size()));
      layout_.data_left.push_back(Take(kWordBytes, kWordBytes));
      result_.module.passive_segments.emplace_back(segment.bytes.begin(), segment.bytes.end());
    }
  }

  void Store(uint64_t at, std::span<const uint32_t> words) {
    std::memcpy(state_.data() + (at - linkage_.state_begin), words.data(), words.size_bytes());
  }

  // Active data segments have no bytes left for memory.init; the entry applies them nevertheless.
  void FillState() {
    state_.resize(end_ - linkage_.state_begin);
    for (size_t i = 0; i < module_.globals.size(); ++i) {
      const Global& global = module_.globals[i];
      if (global.import || global.init.kind == Constant::Kind::kGlobal) {
        continue;  // The entry copies these globals.
      }
      const Constant& init = global.init;
      const uint64_t low = init.kind == Constant::Kind::kFunction ? layout_.references[init.index] : init.low;
      Store(layout_.globals[i], std::array{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                                           static_cast<uint32_t>(init.high), static_cast<uint32_t>(init.high >> 32)});
    }
    for (size_t i = 0; i < module_.tables.size(); ++i) {
      if (!module_.tables[i].import) {
        Store(layout_.tables[i].offset, std::array{static_cast<uint32_t>(module_.tables[i].limits.initial)});
      }
    }
    for (size_t i = 0; i < module_.elems.size(); ++i) {
      std::vector<uint32_t> words = {layout_.elems[i].capacity};
      for (size_t entry = 0; entry < layout_.elems[i].capacity; ++entry) {
        const uint32_t function = module_.elems[i].functions[entry];
        words.push_back(function == kNullFunction ? 0 : layout_.references[function]);
      }
      for (const auto& [entry, global] : module_.elems[i].globals) {
        if (entry < layout_.elems[i].capacity) {  // Declared segments keep no entries.
          words[1 + entry] = static_cast<uint32_t>(linkage_.global_bits[global]);
        }
      }
      Store(layout_.elems[i].offset, words);
    }
    for (size_t i = 0; i < module_.data.size(); ++i) {
      const bool is_passive = module_.data[i].mode == SegmentMode::kPassive;
      Store(layout_.data_left[i], std::array{is_passive ? static_cast<uint32_t>(module_.data[i].bytes.size()) : 0});
    }
    ir::Module& out = result_.module;
    out.state_bytes = kStoreStateBytes;
    out.state = *Compact(state_, state_.size());
    for (ir::DataSegment& segment : out.state) {
      segment.address += linkage_.state_begin;
    }
    result_.state_end = static_cast<uint32_t>(end_);
  }

  bool Lower() {
    ir::Module& out = result_.module;
    out.name = module_.name;
    out.functions.resize(out.references.size());
    LowerContext context{.module = module_,
                         .layout = layout_,
                         .ids = ids_,
                         .types = types_,
                         .is_linked = true,
                         .values_left = limits::kKernelIrValuesMax,
                         .table_functions = {.next = static_cast<uint32_t>(out.functions.size())}};
    for (size_t i = 0; i < module_.functions.size(); ++i) {
      const Function& function = module_.functions[i];
      if (function.import) {
        continue;
      }
      ir::Function& lowered = out.functions[ids_[i].index];
      lowered.name = function.name.empty() ? "function " + std::to_string(i) : function.name;
      lowered.type = module_.type_of(function);
      if (!LowerFunction(context, function, lowered)) {
        return false;
      }
    }
    AppendLinkedEntry(context, out);
    return true;
  }

  const Module& module_;
  const Linkage& linkage_;
  Diagnostics& diagnostics_;
  LinkedModule result_;
  Layout layout_;
  std::vector<uint32_t> types_;  // Indexed by signature.
  std::vector<ir::FunctionId> ids_;
  uint64_t end_;
  std::vector<uint8_t> state_;  // Begins at state_begin.
};

}  // namespace

std::optional<ModuleOutline> OutlineModule(std::span<const uint8_t> bytes, Diagnostics& diagnostics) {
  const std::optional<Module> module = ReadModule(bytes, kPlace, diagnostics);
  if (!module) {
    return std::nullopt;
  }
  ModuleOutline outline;
  const auto add = [&outline](std::vector<ExternType>& types, ExternType type,
                              const std::optional<ImportDecl>& import) {
    if (import) {
      outline.imports.push_back({import->module, import->name, type});
    }
    types.push_back(std::move(type));
  };
  for (const Function& function : module->functions) {
    add(outline.functions, TypeOf(*module, function), function.import);
  }
  for (const Table& table : module->tables) {
    add(outline.tables, TypeOf(table), table.import);
  }
  if (module->memory) {
    add(outline.memories, TypeOf(*module->memory), module->memory->import);
  }
  for (const Global& global : module->globals) {
    add(outline.globals, TypeOf(global), global.import);
  }
  for (const Export& item : module->exports) {
    outline.exports.push_back({item.name, item.kind, item.index});
  }
  return outline;
}

std::optional<LinkedModule> LinkModule(std::span<const uint8_t> bytes, const Linkage& linkage,
                                       Diagnostics& diagnostics) {
  const std::optional<Module> module = ReadModule(bytes, kPlace, diagnostics);
  if (!module) {
    return std::nullopt;
  }
  const auto imported = [](const auto& items) {
    return static_cast<size_t>(
        std::count_if(items.begin(), items.end(), [](const auto& item) { return item.import.has_value(); }));
  };
  HPVMD_CHECK(linkage.signatures != nullptr && imported(module->functions) == linkage.functions.size() &&
              imported(module->globals) == linkage.globals.size() &&
              imported(module->tables) == linkage.tables.size() &&
              linkage.tables.size() == linkage.table_capacities.size());
  return Linker(*module, linkage, diagnostics).Link();
}

}  // namespace hpvm::wasm
