// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_NARROW_TABLE_H_
#define HPVMD_COMPILER_FRONT_WASM_NARROW_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace hpvm::wasm {

// clang gives every module for wasm64 a table with 64-bit indices, which the wabt we link cannot read. Returns the
// module with that flag cleared and every offset unchanged, or nothing if there is no such table. A module that calls
// through the table then fails to validate, because its indices are i64; one that does not means the same as before.
std::vector<uint8_t> NarrowTable(std::span<const uint8_t> bytes);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_NARROW_TABLE_H_
