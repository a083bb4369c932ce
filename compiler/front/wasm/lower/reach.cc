// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/reach.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "compiler/front/wasm/read/imports.h"

namespace hpvm::wasm {
namespace {

// Returns equal keys for equal signatures, and only for them.
std::string Key(const Signature& signature) {
  std::string key;
  for (const ValueType type : signature.params) {
    key += static_cast<char>('a' + static_cast<int>(type));
  }
  key += ' ';
  for (const ValueType type : signature.results) {
    key += static_cast<char>('a' + static_cast<int>(type));
  }
  return key;
}

class Walker {
 public:
  explicit Walker(const Module& module) : module_(module) {
    reach_.ids.resize(module.functions.size());
    is_referenced_.resize(module.functions.size());
    reach_.types.resize(module.signatures.size(), kNowhere);
    reach_.tables.resize(module.tables.size());
    reach_.grown.resize(module.tables.size());
    reach_.elems.resize(module.elems.size());
    reach_.data.resize(module.data.size());
    reach_.data_dropped.resize(module.data.size());
    elems_of_.resize(module.tables.size());
    for (size_t i = 0; i < module.elems.size(); ++i) {
      if (module.elems[i].mode == SegmentMode::kActive) {
        elems_of_[module.elems[i].table].push_back(static_cast<uint32_t>(i));
      }
    }
  }

  Reach From(std::span<const uint32_t> roots, std::span<const uint32_t> references) && {
    for (const uint32_t root : roots) {
      Add(root);
    }
    for (const uint32_t function : references) {
      AddReference(function);
    }
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

  void AddReference(uint32_t index) {
    if (index == kNullFunction || is_referenced_[index]) {
      return;
    }
    is_referenced_[index] = true;
    reach_.references.push_back(index);
    AddType(module_.functions[index].signature);
    Add(index);
  }

  void AddType(uint32_t signature) {
    uint32_t& type = reach_.types[signature];
    if (type != kNowhere) {
      return;
    }
    const auto [known, is_new] =
        known_.emplace(Key(module_.signatures[signature]), static_cast<uint32_t>(reach_.type_order.size()));
    if (is_new) {
      reach_.type_order.push_back(signature);
    }
    type = known->second;
  }

  void AddTable(uint64_t table) {
    if (reach_.tables[table]) {
      return;
    }
    reach_.tables[table] = true;
    for (const uint32_t segment : elems_of_[table]) {
      AddFunctions(module_.elems[segment]);
    }
  }

  void AddFunctions(const ElemSegment& segment) {
    for (const uint32_t function : segment.functions) {
      AddReference(function);
    }
  }

  void Use(const ImportDecl& import) {
    const Import& known = *FindImport(import.name);
    const ImportShape shape = known.shape;
    if (shape == ImportShape::kMath && std::ranges::find(reach_.math, known.math) == reach_.math.end()) {
      reach_.math.push_back(known.math);
    }
    reach_.uses_barrier |= shape == ImportShape::kBarrier;
    reach_.uses_group_memory |= shape == ImportShape::kLocalAlloc;
  }

  void Visit(const Instr& instr) {
    const uint32_t low = static_cast<uint32_t>(instr.imm);
    const uint32_t high = static_cast<uint32_t>(instr.imm >> 32);
    switch (instr.kind) {
      case InstrKind::kPlain:
        reach_.grows_memory |= instr.opcode == ir::Opcode::kMemoryGrow;
        return;
      case InstrKind::kCall: {
        const std::optional<ImportDecl>& import = module_.functions[low].import;
        return import ? Use(*import) : Add(low);
      }
      case InstrKind::kCallIndirect:
        AddType(low);
        return AddTable(high);
      case InstrKind::kRefFunc:
        return AddReference(low);
      case InstrKind::kGlobalGet: {
        const Constant& init = module_.globals[low].init;
        return init.kind == Constant::Kind::kFunction ? AddReference(init.index) : void();
      }
      case InstrKind::kTableGrow:
        reach_.grown[low] = true;
        return AddTable(low);
      case InstrKind::kTableGet:
      case InstrKind::kTableSet:
      case InstrKind::kTableSize:
      case InstrKind::kTableFill:
        return AddTable(low);
      case InstrKind::kTableCopy:
        AddTable(low);
        return AddTable(high);
      case InstrKind::kTableInit:
        reach_.elems[low] = true;
        if (module_.elems[low].mode == SegmentMode::kPassive) {  // Other segments are empty after instantiation.
          AddFunctions(module_.elems[low]);
        }
        return AddTable(high);
      case InstrKind::kMemoryInit:
        reach_.data[low] = true;
        return;
      case InstrKind::kDataDrop:
        reach_.data_dropped[low] = true;
        return;
      default:
        return;
    }
  }

  const Module& module_;
  Reach reach_;
  std::vector<bool> is_referenced_;
  std::vector<std::vector<uint32_t>> elems_of_;  // Indices of active segments by table.
  std::map<std::string, uint32_t> known_;
};

}  // namespace

bool Reach::UsesState() const {
  const auto any = [](const std::vector<bool>& flags) { return std::ranges::find(flags, true) != flags.end(); };
  return !references.empty() || !type_order.empty() || any(tables) || any(elems) || any(data);
}

Reach Walk(const Module& module, std::span<const uint32_t> roots, std::span<const uint32_t> references) {
  return Walker(module).From(roots, references);
}

}  // namespace hpvm::wasm
