// SPDX-License-Identifier: Apache-2.0
// tests/golden/wasm_simd/v128.golden: what V8 computed. Its generator says how a case lies in memory.
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
  std::string text;  // As the file has it.
  uint64_t offset = 0;
  uint8_t lane = 0;
  std::vector<uint8_t> bytes;  // 16, or none.
};

// The cases of one instruction with one immediate.
struct V128Group {
  std::string name;
  V128Immediate immediate;
  std::vector<uint8_t> memory;  // kV128CaseBytes a case, before it runs.
  std::vector<uint8_t> want;    // 16 bytes a case: the result's block.

  size_t cases() const { return want.size() / 16; }
};

// Empty, with a GoogleTest failure, when the file is missing or malformed.
std::vector<V128Group> ReadV128Golden(const std::string& path);

// Whether it is float arithmetic: the sign and payload of a NaN that it gives are free.
bool IsV128Arithmetic(std::string_view instruction);
// Whether the result is right: to the bit, but for the payload and sign of a NaN that arithmetic gave.
bool SameV128(std::string_view instruction, const uint8_t* found, const uint8_t* want);
// "00ff..."
std::string HexOf(const uint8_t* bytes, size_t count);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_TESTING_V128_GOLDEN_H_
