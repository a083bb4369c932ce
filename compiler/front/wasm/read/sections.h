// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_SECTIONS_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_SECTIONS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "compiler/api/byte_reader.h"

namespace hpvm::wasm {

// Stands where the contents of the first section with that id begin, and ends where they do; positions count from the
// module's beginning. Nothing where there is none or something in front of it is malformed, which WABT's reader says.
std::optional<ByteReader> FindSection(std::span<const uint8_t> module, uint8_t id);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_SECTIONS_H_
