// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_FAULT_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_FAULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/diagnostic.h"

namespace hpvm::wasm {

inline Diagnostic Fault(const std::string& place, std::optional<uint64_t> offset, std::string message) {
  return Diagnostic{Severity::kError, place, offset, std::move(message)};
}

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_FAULT_H_
