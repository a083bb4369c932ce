// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_NARROW_TABLE_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_NARROW_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace hpvm::wasm {

// clang gives every wasm64 module a table with 64-bit indices, which the wabt we link cannot read.
struct NarrowedTables {
  // The module with that flag cleared and every offset unchanged; empty when there is no such table.
  std::vector<uint8_t> bytes;
  // Indexed by table, without imported tables: true when the flag was set. The reader takes over their checks.
  std::vector<bool> is_64;
};
NarrowedTables NarrowTables(std::span<const uint8_t> bytes);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_NARROW_TABLE_H_
