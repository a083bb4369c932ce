// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_SECTIONS_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_SECTIONS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "compiler/api/byte_reader.h"

namespace hpvm::wasm {

// Returns a reader that covers the contents of the first section with that id; positions count from the module's
// beginning. Returns nothing when there is no such section or something before it is malformed, which wabt's reader
// reports.
std::optional<ByteReader> FindSection(std::span<const uint8_t> module, uint8_t id);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_SECTIONS_H_
