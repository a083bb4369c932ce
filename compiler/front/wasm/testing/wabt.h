// SPDX-License-Identifier: Apache-2.0
// wabt's assembler and its interpreter, for tests: the second opinion on what a module means. C++17, because wabt's
// interpreter headers are not C++20.
#ifndef HPVMD_COMPILER_FRONT_WASM_TESTING_WABT_H_
#define HPVMD_COMPILER_FRONT_WASM_TESTING_WABT_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hpvm::wasm {

// The module of a text, which is not validated. Fails the current test and returns nothing when the text does not
// parse.
std::vector<uint8_t> Assemble(std::string_view wat);

// Calls the export "run" with one address for each of `instances` instances in turn, on one memory, with
// hpvm.instance_id as the only import allowed. Returns the i32 array at that address, or nothing if an instance traps.
std::optional<std::vector<uint32_t>> RunInWabt(const std::vector<uint8_t>& module, uint32_t instances);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_TESTING_WABT_H_
