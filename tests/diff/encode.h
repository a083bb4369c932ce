// SPDX-License-Identifier: Apache-2.0
// Writes a program as a Wasm module.
#ifndef HPVMD_TESTS_DIFF_ENCODE_H_
#define HPVMD_TESTS_DIFF_ENCODE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/diff/program.h"

namespace hpvm::diff {

// V8's form imports one memory that holds module memory and the buffers at their virtual addresses, and calls
// functions for memory.size and memory.grow. Everything else is the same.
enum class Dialect : uint8_t { kKernel, kV8 };

// Pages of V8's memory, which contains every address that a program may use.
inline constexpr uint32_t kV8Pages = 64;

// Returns nothing when a branch or call names a missing target, which cutting a program can cause.
std::optional<std::vector<uint8_t>> Encode(const Program& program, Dialect dialect);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_ENCODE_H_
