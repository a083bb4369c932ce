// SPDX-License-Identifier: Apache-2.0
#include "tests/wast/value.h"

#include <bit>
#include <cinttypes>
#include <cstdio>

namespace hpvm::wast {
namespace {

using wasm::ValueType;

bool IsReference(ValueType type) { return type == ValueType::kFuncRef || type == ValueType::kExternRef; }

std::string Format(const char* format, auto... arguments) {
  char text[80];
  std::snprintf(text, sizeof(text), format, arguments...);
  return text;
}

std::string BitsText(LaneType lane, uint64_t bits) {
  switch (lane) {
    case LaneType::kF32:
      return Format("%.9g (0x%08" PRIx64 ")", static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))),
                    bits);
    case LaneType::kF64:
      return Format("%.17g (0x%016" PRIx64 ")", std::bit_cast<double>(bits), bits);
    case LaneType::kI32:
      return Format("%" PRId32 " (0x%08" PRIx64 ")", static_cast<int32_t>(bits), bits);
    case LaneType::kI64:
      return Format("%" PRId64 " (0x%016" PRIx64 ")", static_cast<int64_t>(bits), bits);
    default:
      return Format("0x%0*" PRIx64, static_cast<int>(2 * Bytes(lane)), bits);
  }
}

std::string ReferenceText(uint64_t bits, ValueType type) {
  if (bits == 0) {
    return "null";
  }
  return type == ValueType::kExternRef ? Format("%" PRIu64, bits - 1) : Format("function %" PRIu64, bits);
}

std::string LaneText(LaneType lane, const LanePattern& pattern) {
  switch (pattern.match) {
    case Match::kBits:
      return BitsText(lane, pattern.bits);
    case Match::kCanonicalNan:
      return "nan:canonical";
    case Match::kArithmeticNan:
      return "nan:arithmetic";
    case Match::kNonNull:
      return "not null";
  }
  return "?";
}

bool LaneMatches(LaneType lane, const LanePattern& pattern, uint64_t bits) {
  const bool is_f32 = lane == LaneType::kF32;
  const uint64_t quiet = is_f32 ? 0x7fc00000u : 0x7ff8000000000000u;
  const uint64_t magnitude = is_f32 ? 0x7fffffffu : 0x7fffffffffffffffu;
  switch (pattern.match) {
    case Match::kBits:
      return bits == pattern.bits;
    case Match::kCanonicalNan:
      return (bits & magnitude) == quiet;
    case Match::kArithmeticNan:
      return (bits & quiet) == quiet;
    case Match::kNonNull:
      return bits != 0;
  }
  return false;
}

// Returns "i32", or "v128 i16x8".
std::string TypeText(ValueType type, LaneType lane) {
  std::string text(wasm::Name(type));
  if (type == ValueType::kV128) {
    text += " " + std::string(Name(lane)) + "x" + std::to_string(16 / Bytes(lane));
  }
  return text;
}

}  // namespace

void AppendSlots(const Value& value, std::vector<uint64_t>& slots) {
  if (value.type != ValueType::kV128) {
    slots.push_back(value.low);
    return;
  }
  for (uint32_t lane = 0; lane < 4; ++lane) {
    slots.push_back(LaneBits(value, LaneType::kI32, lane));
  }
}

Value FromSlots(ValueType type, std::span<const uint64_t> slots) {
  const auto half = [&](size_t i) { return slots[i] & 0xffffffffu; };
  switch (type) {
    case ValueType::kV128:
      return {type, half(0) | half(1) << 32, half(2) | half(3) << 32};
    case ValueType::kI64:
    case ValueType::kF64:
      return {type, slots[0], 0};
    default:
      return {type, half(0), 0};
  }
}

uint32_t Bytes(LaneType lane) {
  constexpr uint32_t kBytes[] = {1, 2, 4, 8, 4, 8};
  return kBytes[static_cast<size_t>(lane)];
}

std::string_view Name(LaneType lane) {
  constexpr std::string_view kNames[] = {"i8", "i16", "i32", "i64", "f32", "f64"};
  return kNames[static_cast<size_t>(lane)];
}

LaneType LaneOf(ValueType type) {
  switch (type) {
    case ValueType::kI64:
      return LaneType::kI64;
    case ValueType::kF32:
      return LaneType::kF32;
    case ValueType::kF64:
      return LaneType::kF64;
    default:
      return LaneType::kI32;
  }
}

uint64_t LaneBits(const Value& value, LaneType lane, uint32_t index) {
  const uint32_t bits = 8 * Bytes(lane);
  const uint32_t at = index * bits;
  const uint64_t half = at < 64 ? value.low : value.high;
  return bits == 64 ? half : (half >> (at % 64)) & ((uint64_t{1} << bits) - 1);
}

bool Matches(const Pattern& pattern, const Value& value) {
  if (pattern.type != value.type) {
    return false;
  }
  for (uint32_t i = 0; i < pattern.lanes.size(); ++i) {
    if (!LaneMatches(pattern.lane, pattern.lanes[i], LaneBits(value, pattern.lane, i))) {
      return false;
    }
  }
  return true;
}

std::string ToString(const Value& value, LaneType lane) {
  std::string text = TypeText(value.type, lane);
  if (IsReference(value.type)) {
    return text + " " + ReferenceText(value.low, value.type);
  }
  const uint32_t count = value.type == ValueType::kV128 ? 16 / Bytes(lane) : 1;
  for (uint32_t i = 0; i < count; ++i) {
    text += " " + BitsText(lane, LaneBits(value, lane, i));
  }
  return text;
}

std::string ToString(const Value& value) { return ToString(value, LaneOf(value.type)); }

std::string ToString(const Pattern& pattern) {
  std::string text = TypeText(pattern.type, pattern.lane);
  for (const LanePattern& lane : pattern.lanes) {
    const bool is_number = IsReference(pattern.type) && lane.match == Match::kBits;
    text += " " + (is_number ? ReferenceText(lane.bits, pattern.type) : LaneText(pattern.lane, lane));
  }
  return text;
}

}  // namespace hpvm::wast
