// SPDX-License-Identifier: Apache-2.0
#include "tests/wast/import_types.h"

namespace hpvm::wast {
namespace {

// The actual size is at least the import's, and its maximum does not exceed the import's.
bool LimitsMatch(const wasm::SizeLimits& actual, const wasm::SizeLimits& import) {
  if (actual.is_64 != import.is_64 || actual.is_shared != import.is_shared || actual.initial < import.initial) {
    return false;
  }
  return !import.maximum || (actual.maximum && *actual.maximum <= *import.maximum);
}

}  // namespace

bool MatchesImport(const wasm::ExternType& actual, const wasm::ExternType& import) {
  if (actual.kind != import.kind) {
    return false;
  }
  switch (import.kind) {
    case wasm::ExternKind::kFunction:
      return actual.signature == import.signature;
    case wasm::ExternKind::kTable:
      return actual.value == import.value && LimitsMatch(actual.limits, import.limits);
    case wasm::ExternKind::kMemory:
      return LimitsMatch(actual.limits, import.limits);
    case wasm::ExternKind::kGlobal:
      return actual.value == import.value && actual.is_mutable == import.is_mutable;
  }
  return false;
}

}  // namespace hpvm::wast
