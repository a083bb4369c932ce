// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/imports.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hpvm::wasm {
namespace {

using ir::Opcode;
using ir::Type;

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
};

constexpr size_t kNameBytesMax = 64;  // Longer ones are not compared: the distance costs the product of both lengths.
constexpr size_t kNearNamesMax = 3;

// Levenshtein's distance.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string NearNames(std::string_view name) {
  if (name.starts_with("hpvm_")) {
    name.remove_prefix(5);
  }
  std::vector<std::pair<size_t, std::string_view>> near;
  if (name.size() <= kNameBytesMax) {
    for (const Import& import : kImports) {
      const size_t distance = Distance(name, import.name);
      if (distance <= std::max<size_t>(3, name.size() / 3)) {
        near.emplace_back(distance, import.name);
      }
    }
  }
  std::sort(near.begin(), near.end());
  near.resize(std::min(near.size(), kNearNamesMax));
  std::string text;
  for (const auto& [distance, near_name] : near) {
    text += text.empty() ? " Near names are " : ", ";
    text += near_name;
  }
  return text.empty() ? " The names it has are those of client/kernel/hpvm.h." : text + ".";
}

std::string Advice(const ImportDecl& declaration) {
  if (declaration.module == "wasi_snapshot_preview1" || declaration.module == "wasi_unstable") {
    return " A kernel has no operating system; build it with -nostdlib and without WASI.";
  }
  if (declaration.module == "env") {
    return " It is an undefined symbol of the kernel's sources: define the function, link the library that has it, or "
           "include "
           "hpvm.h for the functions of \"hpvm\".";
  }
  return " The only module to import from is \"hpvm\".";
}

}  // namespace

const Import* FindImport(std::string_view name) {
  for (const Import& import : kImports) {
    if (import.name == name) {
      return &import;
    }
  }
  return nullptr;
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
  }
  return {};
}

std::string CheckImport(const ImportDecl& declaration, const ir::FunctionType& declared, Type address_type) {
  const std::string what = "The import \"" + declaration.module + "." + declaration.name + "\"";
  if (declaration.module != "hpvm") {
    return what + " does not exist." + Advice(declaration);
  }
  const Import* import = FindImport(declaration.name);
  if (import == nullptr) {
    return what + " does not exist." + NearNames(declaration.name);
  }
  const ir::FunctionType wanted = ImportType(*import, address_type, declared);
  if (declared != wanted) {
    return what + " is declared as " + ToString(declared) + "; it is " + ToString(wanted) + ".";
  }
  return "";
}

ir::ValueId EmitImport(const Import& import, const ir::FunctionType& type, std::span<const ir::ValueId> operands,
                       uint32_t source, ir::Builder& builder) {
  if (import.shape == ImportShape::kAssert) {
    const ir::OpId check = builder.BeginIf(operands[0], {}, source);
    builder.Leave(check, {});
    builder.Else();
    builder.Trap(ir::TrapCode::kAssert, source);
    builder.End();
    return {};
  }
  ir::Op op{.code = import.opcode};
  op.source = source;
  op.type = import.type;
  if (import.shape == ImportShape::kQuery) {
    op.type = type.results[0];
  } else if (ir::Info(op.code).family == ir::Family::kAtomic) {
    op.width = static_cast<uint8_t>(ir::Bytes(op.type));
  }
  const ir::OpId id = builder.Append(op, operands, type.results);
  const std::vector<ir::ValueId> results = builder.Results(id);
  return results.empty() ? ir::ValueId() : results[0];
}

}  // namespace hpvm::wasm
