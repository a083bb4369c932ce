// SPDX-License-Identifier: Apache-2.0
// Reads tests/golden/wasm_simd/v128.golden, which holds V8's results. Its generator documents the memory layout of a
// case.
#ifndef HPVMD_COMPILER_FRONT_WASM_TESTING_V128_GOLDEN_H_
#define HPVMD_COMPILER_FRONT_WASM_TESTING_V128_GOLDEN_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::wasm {

inline constexpr size_t kV128CaseBytes = 64;
inline constexpr size_t kV128ResultAt = 48;

struct V128Immediate {
  std::string text;  // As written in the file.
  uint64_t offset = 0;
  uint8_t lane = 0;
  std::vector<uint8_t> bytes;  // 16 bytes, or none.
};

// Cases of one instruction with one immediate.
struct V128Group {
  std::string name;
  V128Immediate immediate;
  std::vector<uint8_t> memory;  // Memory before the instruction runs, kV128CaseBytes per case.
  std::vector<uint8_t> want;    // The block that holds the result, 16 bytes per case.

  size_t cases() const { return want.size() / 16; }
};

// Returns nothing, with a GoogleTest failure, when the file is missing or malformed.
std::vector<V128Group> ReadV128Golden(const std::string& path);

// Returns true for float arithmetic, where the sign and payload of a NaN result are unspecified.
bool IsV128Arithmetic(std::string_view instruction);
// Returns true when the result equals the expected one to the bit, except the sign and payload of a NaN from
// arithmetic.
bool SameV128(std::string_view instruction, const uint8_t* found, const uint8_t* want);
// Returns text such as "00ff...".
std::string HexOf(const uint8_t* bytes, size_t count);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_TESTING_V128_GOLDEN_H_
