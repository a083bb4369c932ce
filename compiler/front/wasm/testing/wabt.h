// SPDX-License-Identifier: Apache-2.0
// wabt's assembler and interpreter, for tests: an independent implementation of WebAssembly's semantics. The header
// is C++17, because wabt's interpreter headers do not compile as C++20.
#ifndef HPVMD_COMPILER_FRONT_WASM_TESTING_WABT_H_
#define HPVMD_COMPILER_FRONT_WASM_TESTING_WABT_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hpvm::wasm {

// Returns the module that `wat` describes, without validating it. Fails the current test and returns nothing when the
// text does not parse.
std::vector<uint8_t> Assemble(std::string_view wat);

// Calls the export "run" with one address for each of `instances` instances in turn, on one memory, with
// hpvm.instance_id as the only import allowed. Returns the i32 array at that address, or nothing when an instance
// traps.
std::optional<std::vector<uint32_t>> RunInWabt(const std::vector<uint8_t>& module, uint32_t instances);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_TESTING_WABT_H_
