// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interval.h"

#include <gtest/gtest.h>

#include <random>
#include <type_traits>

namespace hpvm::ir {
namespace {

template <typename T>
concept Ordered = requires(T a, T b) {
  a < b;
}
|| requires(T a) { a < 0; };

// Code that compares an end must first check that it is known.
static_assert(!Ordered<Exact>);
static_assert(!std::is_convertible_v<Exact, Wide>);
static_assert(!std::is_convertible_v<Exact, bool>);

TEST(IntervalTest, WhatIsTooLargeIsNotKnown) {
  EXPECT_TRUE(Exact(kWideMax - 1));
  EXPECT_FALSE(Exact(kWideMax));
  EXPECT_FALSE(Exact(-kWideMax));
  EXPECT_FALSE(Sum(Exact(kWideMax - 1), 1));
  EXPECT_FALSE(Sum(Exact(kWideMax - 1), Exact()));
  EXPECT_FALSE(Product(Exact(Wide{1} << 50), Exact(Wide{1} << 50)));
  EXPECT_FALSE(Product(Exact(Wide{1} << 99), Exact(Wide{1} << 99)));
  EXPECT_FALSE(Product(Exact(1), Exact()));
  EXPECT_EQ(Product(Exact(), 0), Exact(0));
}

// The sum of two numbers at the limit is not a single number, whatever its value modulo 2^64.
TEST(IntervalTest, NothingBeyondIsSingle) {
  const Interval half{kWideMax / 2, kWideMax - 1};
  for (const Interval& large : {Sum(half, half), Product(half, half), Product(half, Interval{-5, -2}),
                                Interval{kWideMax, kWideMax}, Interval{-kWideMax, -kWideMax}}) {
    EXPECT_FALSE(large.single());
    EXPECT_FALSE(large.is_bounded());
    EXPECT_FALSE(large.is_empty());
    EXPECT_FALSE(large.Within(-kWideMax, kWideMax));
  }
}

TEST(IntervalTest, Ends) {
  EXPECT_EQ(Meet(Interval::AtLeast(3), Interval::AtMost(5)), (Interval{3, 5}));
  EXPECT_EQ(Meet(Interval(), Interval{3, 5}), (Interval{3, 5}));
  EXPECT_TRUE(Meet(Interval::AtLeast(6), Interval::AtMost(5)).is_empty());
  EXPECT_EQ(Hull(Interval::AtLeast(3), Interval{1, 5}), Interval::AtLeast(1));
  EXPECT_EQ(Hull(Interval::Empty(), Interval{1, 5}), (Interval{1, 5}));
  EXPECT_EQ(Product(Interval::AtLeast(2), Interval{3, 4}), Interval::AtLeast(6));
  EXPECT_EQ(Product(Interval::AtLeast(-2), Interval{-3, 0}), Interval::AtMost(6));
  EXPECT_EQ(Product(Interval::AtLeast(-2), Interval{0, 0}), Interval::Single(0));
  EXPECT_EQ(Product(Interval::AtLeast(-1), Interval{-1, 1}), Interval());
  EXPECT_EQ(Interval{}.single(), Exact());
  EXPECT_EQ(Interval::Single(7).single(), Exact(7));
}

// Compares with all members of small intervals, and with numbers near the limit whose ends are forgotten at random.
TEST(IntervalTest, SumsAndProductsHoldWhatTheirMembersGive) {
  std::mt19937_64 random(1);
  const auto number = [&]() -> Wide {
    const int bits = static_cast<int>(random() % 62);
    const Wide value = static_cast<Wide>(random() % (uint64_t{1} << bits) + 1);
    const Wide large = random() % 4 == 0 ? value << (random() % 40) : value;
    return random() % 2 == 0 ? large : -large;
  };
  const auto holds = [](const Interval& interval, Wide value) {
    return (!interval.lo() || *interval.lo() <= value) && (!interval.hi() || *interval.hi() >= value);
  };
  for (int i = 0; i < 200'000; ++i) {
    const Wide a = number(), b = number();
    const auto around = [&](Wide value) {
      const Wide below = number(), above = number();
      return Interval{random() % 4 == 0 ? Exact() : Exact(value - (below < 0 ? -below : below)),
                      random() % 4 == 0 ? Exact() : Exact(value + (above < 0 ? -above : above))};
    };
    const Interval left = around(a), right = around(b);
    ASSERT_TRUE(holds(Sum(left, right), a + b));
    Wide product = 0;
    if (!__builtin_mul_overflow(a, b, &product)) {
      ASSERT_TRUE(holds(Product(left, right), product));
    }
    ASSERT_TRUE(holds(Hull(left, right), a) && holds(Hull(left, right), b));
    ASSERT_EQ(holds(Meet(left, right), a), holds(right, a));
  }
}

TEST(IntervalTest, FloorDivideRoundsDown) {
  EXPECT_EQ(FloorDivide(7, 2), 3);
  EXPECT_EQ(FloorDivide(-7, 2), -4);
  EXPECT_EQ(FloorDivide(-8, 2), -4);
  EXPECT_EQ(FloorDivide(0, 5), 0);
}

}  // namespace
}  // namespace hpvm::ir
