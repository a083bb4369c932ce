// SPDX-License-Identifier: Apache-2.0
#include "tests/wast/import_types.h"

#include <gtest/gtest.h>

#include <optional>

namespace hpvm::wast {
namespace {

using wasm::ExternKind;
using wasm::ExternType;
using wasm::SizeLimits;
using wasm::ValueType;

ExternType Memory(uint64_t pages, std::optional<uint64_t> maximum, bool is_64 = false, bool is_shared = false) {
  ExternType type;
  type.kind = ExternKind::kMemory;
  type.limits = SizeLimits{pages, maximum, is_64, is_shared};
  return type;
}
ExternType Table(ValueType element, uint64_t entries, std::optional<uint64_t> maximum) {
  ExternType type = Memory(entries, maximum);
  type.kind = ExternKind::kTable;
  type.value = element;
  return type;
}
ExternType Global(ValueType value, bool is_mutable) {
  ExternType type;
  type.kind = ExternKind::kGlobal;
  type.value = value;
  type.is_mutable = is_mutable;
  return type;
}
ExternType Function(std::vector<ValueType> params, std::vector<ValueType> results) {
  ExternType type;
  type.signature = {std::move(params), std::move(results)};
  return type;
}

struct Case {
  const char* name;
  ExternType actual, import;
  bool matches;
};

// The specification's rules, with one violation per case.
TEST(MatchesImportTest, FollowsTheSpecification) {
  const Case cases[] = {
      {"same memory", Memory(1, 2), Memory(1, 2), true},
      {"larger than asked", Memory(2, 3), Memory(1, 3), true},
      {"grown beyond the import's minimum, no maximum asked", Memory(9, 9), Memory(0, std::nullopt), true},
      {"smaller maximum", Memory(1, 2), Memory(1, 3), true},
      {"too small", Memory(1, 2), Memory(2, 2), false},
      {"larger maximum", Memory(1, 4), Memory(1, 3), false},
      {"no maximum where one is asked", Memory(1, std::nullopt), Memory(1, 3), false},
      {"64 bits for 32", Memory(1, 2, true), Memory(1, 2), false},
      {"32 bits for 64", Memory(1, 2), Memory(1, 2, true), false},
      {"shared for not shared", Memory(1, 2, false, true), Memory(1, 2), false},
      {"not shared for shared", Memory(1, 2), Memory(1, 2, false, true), false},
      {"same table", Table(ValueType::kFuncRef, 5, 9), Table(ValueType::kFuncRef, 5, 9), true},
      {"table of other elements", Table(ValueType::kExternRef, 5, 9), Table(ValueType::kFuncRef, 5, 9), false},
      {"table too small", Table(ValueType::kFuncRef, 4, 9), Table(ValueType::kFuncRef, 5, 9), false},
      {"same global", Global(ValueType::kI64, true), Global(ValueType::kI64, true), true},
      {"mutable for constant", Global(ValueType::kI64, true), Global(ValueType::kI64, false), false},
      {"constant for mutable", Global(ValueType::kI64, false), Global(ValueType::kI64, true), false},
      {"global of another type", Global(ValueType::kI32, false), Global(ValueType::kI64, false), false},
      {"same function", Function({ValueType::kI32}, {ValueType::kF64}), Function({ValueType::kI32}, {ValueType::kF64}),
       true},
      {"other parameters", Function({ValueType::kI64}, {}), Function({ValueType::kI32}, {}), false},
      {"other results", Function({}, {ValueType::kI64}), Function({}, {}), false},
      {"a function for a global", Function({}, {}), Global(ValueType::kI32, false), false},
      {"a memory for a table", Memory(1, 2), Table(ValueType::kFuncRef, 1, 2), false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(MatchesImport(c.actual, c.import), c.matches) << c.name;
  }
}

}  // namespace
}  // namespace hpvm::wast
