// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/types.h"

#include <string>

#include "compiler/front/wasm/read/decoded.h"

namespace hpvm::wasm {
namespace {

template <typename T>
std::string Listed(const std::vector<T>& types) {
  constexpr size_t kListedMax = 32;
  std::string text = "(";
  for (size_t i = 0; i < types.size() && i < kListedMax; ++i) {
    text += (i == 0 ? "" : ", ") + std::string(Name(types[i]));
  }
  return text + (types.size() > kListedMax ? ", ...)" : ")");
}

}  // namespace

std::string_view Name(ValueType type) {
  constexpr std::string_view kNames[] = {"i32", "i64", "f32", "f64", "v128", "funcref", "externref"};
  return kNames[static_cast<size_t>(type)];
}

uint32_t Slots(ValueType type) { return type == ValueType::kV128 ? 4 : 1; }

ir::Type IrType(ValueType type) {
  switch (type) {
    case ValueType::kI64:
      return ir::Type::kI64;
    case ValueType::kF32:
      return ir::Type::kF32;
    case ValueType::kF64:
      return ir::Type::kF64;
    default:
      return ir::Type::kI32;
  }
}

ir::FunctionType IrType(const Signature& signature) {
  ir::FunctionType type;
  for (const ValueType value : signature.params) {
    type.params.insert(type.params.end(), Slots(value), IrType(value));
  }
  for (const ValueType value : signature.results) {
    type.results.insert(type.results.end(), Slots(value), IrType(value));
  }
  return type;
}

std::string ToString(const ir::FunctionType& type) { return Listed(type.params) + " -> " + Listed(type.results); }
std::string ToString(const Signature& signature) {
  return Listed(signature.params) + " -> " + Listed(signature.results);
}

}  // namespace hpvm::wasm
