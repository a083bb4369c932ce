// SPDX-License-Identifier: Apache-2.0
#include "tests/wast/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpvm::wast {
namespace {

using testing::ElementsAre;
using wasm::ValueType;

// A v128 is passed as four values of 32 bits, the lowest first, and is restored.
TEST(ValueTest, PassesVectorsInFourSlots) {
  const Value vector{ValueType::kV128, 0x1111111122222222, 0x3333333344444444};
  std::vector<uint64_t> slots;
  AppendSlots({ValueType::kI64, 0xfedcba9876543210, 0}, slots);
  AppendSlots(vector, slots);
  EXPECT_THAT(slots, ElementsAre(0xfedcba9876543210, 0x22222222, 0x11111111, 0x44444444, 0x33333333));
  EXPECT_EQ(FromSlots(ValueType::kV128, std::span(slots).subspan(1)), vector);
}

// Bits above a narrow result in its slot are ignored.
TEST(ValueTest, TakesTheLowHalfOfNarrowResults) {
  const std::vector<uint64_t> slots = {0xdeadbeef00000007};
  for (const ValueType type : {ValueType::kI32, ValueType::kF32, ValueType::kFuncRef, ValueType::kExternRef}) {
    EXPECT_EQ(FromSlots(type, slots).low, 7u) << wasm::Name(type);
  }
  EXPECT_EQ(FromSlots(ValueType::kF64, slots).low, 0xdeadbeef00000007u);
}

// Lanes are counted from the lowest bits, over both halves.
TEST(ValueTest, ReadsLanes) {
  const Value vector{ValueType::kV128, 0x0706050403020100, 0x0f0e0d0c0b0a0908};
  EXPECT_EQ(LaneBits(vector, LaneType::kI8, 9), 0x09u);
  EXPECT_EQ(LaneBits(vector, LaneType::kI16, 3), 0x0706u);
  EXPECT_EQ(LaneBits(vector, LaneType::kF32, 2), 0x0b0a0908u);
  EXPECT_EQ(LaneBits(vector, LaneType::kI64, 1), 0x0f0e0d0c0b0a0908u);
}

struct NanCase {
  const char* name;
  LaneType lane;
  uint64_t bits;
  bool canonical, arithmetic;
};
constexpr NanCase kNanCases[] = {
    {"f32 canonical", LaneType::kF32, 0x7fc00000, true, true},
    {"f32 canonical, negative", LaneType::kF32, 0xffc00000, true, true},
    {"f32 quiet with payload", LaneType::kF32, 0x7fc00001, false, true},
    {"f32 signalling", LaneType::kF32, 0x7fa00000, false, false},
    {"f32 infinity", LaneType::kF32, 0x7f800000, false, false},
    {"f32 number", LaneType::kF32, 0x3f800000, false, false},
    {"f64 canonical, negative", LaneType::kF64, 0xfff8000000000000, true, true},
    {"f64 quiet with payload", LaneType::kF64, 0x7ff8000000000001, false, true},
    {"f64 signalling", LaneType::kF64, 0x7ff4000000000000, false, false},
    {"f64 infinity", LaneType::kF64, 0x7ff0000000000000, false, false},
};

// A canonical NaN is also an arithmetic one; neither pattern accepts a signalling NaN, an infinity or a number.
TEST(PatternTest, TellsKindsOfNan) {
  for (const NanCase& c : kNanCases) {
    const Value value{c.lane == LaneType::kF32 ? ValueType::kF32 : ValueType::kF64, c.bits, 0};
    EXPECT_EQ(Matches({value.type, c.lane, {{Match::kCanonicalNan, 0}}}, value), c.canonical) << c.name;
    EXPECT_EQ(Matches({value.type, c.lane, {{Match::kArithmeticNan, 0}}}, value), c.arithmetic) << c.name;
  }
}

// Every lane of a vector must match; each may be of another kind.
TEST(PatternTest, ComparesEachLane) {
  const Pattern pattern{ValueType::kV128, LaneType::kF64, {{Match::kBits, 5}, {Match::kCanonicalNan, 0}}};
  EXPECT_TRUE(Matches(pattern, {ValueType::kV128, 5, 0x7ff8000000000000}));
  EXPECT_FALSE(Matches(pattern, {ValueType::kV128, 4, 0x7ff8000000000000}));
  EXPECT_FALSE(Matches(pattern, {ValueType::kV128, 5, 0x7ff8000000000001}));
}

// Equal bits of another type are another value.
TEST(PatternTest, ComparesTypes) {
  const Pattern pattern{ValueType::kF32, LaneType::kF32, {{Match::kBits, 1}}};
  EXPECT_TRUE(Matches(pattern, {ValueType::kF32, 1, 0}));
  EXPECT_FALSE(Matches(pattern, {ValueType::kI32, 1, 0}));
}

// Null matches no function, whatever number a script gives.
TEST(PatternTest, TellsNullFromAnyFunction) {
  const Pattern any{ValueType::kFuncRef, LaneType::kI32, {{Match::kNonNull, 0}}};
  EXPECT_TRUE(Matches(any, {ValueType::kFuncRef, 3, 0}));
  EXPECT_FALSE(Matches(any, {ValueType::kFuncRef, 0, 0}));
}

// Messages show the type, the number and the bits.
TEST(ValueTest, PrintsValues) {
  EXPECT_EQ(ToString(Value{ValueType::kI32, 0xffffffff, 0}), "i32 -1 (0xffffffff)");
  EXPECT_EQ(ToString(Value{ValueType::kF32, 0x3f000000, 0}), "f32 0.5 (0x3f000000)");
  EXPECT_EQ(ToString(Value{ValueType::kExternRef, 8, 0}), "externref 7");
  EXPECT_EQ(ToString(Value{ValueType::kExternRef, 0, 0}), "externref null");
  EXPECT_EQ(ToString(Value{ValueType::kV128, 0x0002000100000000, 0}, LaneType::kI16),
            "v128 i16x8 0x0000 0x0000 0x0001 0x0002 0x0000 0x0000 0x0000 0x0000");
  EXPECT_EQ(ToString(Pattern{ValueType::kF64, LaneType::kF64, {{Match::kArithmeticNan, 0}}}), "f64 nan:arithmetic");
}

}  // namespace
}  // namespace hpvm::wast
