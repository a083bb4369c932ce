// SPDX-License-Identifier: Apache-2.0
// Decodes a module's bytes, with full validation by wabt.
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_READER_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_READER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/decoded.h"

namespace hpvm::wasm {

// Returns nothing when the bytes are no valid module or use a refused feature; `diagnostics` then has the first
// fault. The module's data segments point into `bytes`. `place` names the module in messages.
std::optional<Module> ReadModule(std::span<const uint8_t> bytes, const std::string& place, Diagnostics& diagnostics);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_READER_H_
