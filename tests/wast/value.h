// SPDX-License-Identifier: Apache-2.0
// Values of WebAssembly in scripts, and patterns with which results are compared.
#ifndef HPVMD_TESTS_WAST_VALUE_H_
#define HPVMD_TESTS_WAST_VALUE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/front/wasm/testing/link.h"

namespace hpvm::wast {

// For scalars `low` holds the bits, i32 and f32 in its low half. A v128 uses both, the lowest lane in the lowest
// bits. A funcref is a reference of the store, an externref the script's number plus one; 0 is null.
struct Value {
  wasm::ValueType type = wasm::ValueType::kI32;
  uint64_t low = 0, high = 0;
  friend bool operator==(const Value&, const Value&) = default;
};

// Appends a value in the form of the call area and host calls (compiler/front/wasm/testing/link.h).
void AppendSlots(const Value& value, std::vector<uint64_t>& slots);
// Reads the first Slots(type) of `slots`.
Value FromSlots(wasm::ValueType type, std::span<const uint64_t> slots);

enum class LaneType : uint8_t { kI8, kI16, kI32, kI64, kF32, kF64 };
uint32_t Bytes(LaneType lane);
std::string_view Name(LaneType lane);
// Returns the lane type of a scalar; references are i32.
LaneType LaneOf(wasm::ValueType type);
// Returns the bits of one lane, counted from the lowest.
uint64_t LaneBits(const Value& value, LaneType lane, uint32_t index);

enum class Match : uint8_t {
  kBits,
  kCanonicalNan,   // Only the payload's highest bit is set; either sign.
  kArithmeticNan,  // The payload's highest bit is set.
  kNonNull,        // For references.
};
struct LanePattern {
  Match match = Match::kBits;
  uint64_t bits = 0;
};
// The requirement on a result: one lane for scalars, all lanes of a v128.
struct Pattern {
  wasm::ValueType type = wasm::ValueType::kI32;
  LaneType lane = LaneType::kI32;
  std::vector<LanePattern> lanes;
};
bool Matches(const Pattern& pattern, const Value& value);

// Formats "i32 -1", "f32 0.5 (0x3f000000)", "v128 i16x8 0x0001 0xffff ...".
std::string ToString(const Value& value, LaneType lane);
std::string ToString(const Value& value);
std::string ToString(const Pattern& pattern);

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_VALUE_H_
