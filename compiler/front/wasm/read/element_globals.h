// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_ELEMENT_GLOBALS_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_ELEMENT_GLOBALS_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace hpvm::wasm {

// The wabt we link cannot read an element that is global.get of an imported global. Such elements are replaced by
// ref.null, and the reader takes over their checks.
struct ElementGlobals {
  // The module with such elements replaced and every offset unchanged; empty when it has none.
  std::vector<uint8_t> bytes;
  // The global, by the offset after its element's operand.
  std::unordered_map<uint64_t, uint32_t> globals;
};
ElementGlobals ReplaceElementGlobals(std::span<const uint8_t> bytes);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_ELEMENT_GLOBALS_H_
