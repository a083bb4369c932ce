// SPDX-License-Identifier: Apache-2.0
// WebAssembly's types of values, functions, tables and memories.
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_TYPES_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_TYPES_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hpvm::wasm {

enum class ValueType : uint8_t { kI32, kI64, kF32, kF64, kV128, kFuncRef, kExternRef };
// Returns a name such as "i32", "v128" or "funcref".
std::string_view Name(ValueType type);
// Returns the number of kernel IR values that represent the type: 4 for v128 (i32 each), else 1; references are i32.
uint32_t Slots(ValueType type);

struct Signature {
  std::vector<ValueType> params, results;
  friend bool operator==(const Signature&, const Signature&) = default;
};

struct SizeLimits {
  uint64_t initial = 0;
  std::optional<uint64_t> maximum;
  bool is_64 = false;
  bool is_shared = false;
};

enum class ExternKind : uint8_t { kFunction, kTable, kMemory, kGlobal };

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_TYPES_H_
