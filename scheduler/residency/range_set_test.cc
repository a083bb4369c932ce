// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency/range_set.h"

#include <gtest/gtest.h>

#include <bitset>

#include "base/clock.h"

namespace hpvm::scheduler {
namespace {

using Bits = std::bitset<64>;

Bits BitsOf(const RangeSet& set) {
  Bits bits;
  uint64_t last = 0;
  for (const ByteRange& range : set.ranges()) {
    EXPECT_FALSE(range.is_empty());
    EXPECT_TRUE(bits.none() || range.begin > last) << "Ranges touch or are out of order.";
    last = range.end;
    for (uint64_t b = range.begin; b < range.end; ++b) {
      bits.set(b);
    }
  }
  return bits;
}

Bits BitsOf(ByteRange range) { return BitsOf(RangeSet(range)); }

// Compares with one bit per byte.
TEST(RangeSetTest, AgreesWithBits) {
  SeededRng rng(1);
  RangeSet set, other;
  Bits bits, other_bits;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t a = rng.Below(65), b = rng.Below(65);
    const ByteRange range{a, b};
    const Bits mask = BitsOf(range);
    switch (rng.Below(7)) {
      case 0:
        set.Add(range);
        bits |= mask;
        break;
      case 1:
        set.Remove(range);
        bits &= ~mask;
        break;
      case 2:
        other.Add(range);
        other_bits |= mask;
        break;
      case 3:
        other.Remove(range);
        other_bits &= ~mask;
        break;
      case 4:
        set.Add(other);
        bits |= other_bits;
        break;
      case 5:
        set.Remove(other);
        bits &= ~other_bits;
        break;
      default:
        std::swap(set, other);
        std::swap(bits, other_bits);
    }
    ASSERT_EQ(BitsOf(set), bits);
    ASSERT_EQ(set.bytes(), bits.count());
    ASSERT_EQ(set.Contains(range), (mask & ~bits).none());
    ASSERT_EQ(set.Overlaps(range), (mask & bits).any());
    ASSERT_EQ(BitsOf(set.Within(range)), bits & mask);
    ASSERT_EQ(BitsOf(set.Missing(range)), mask & ~bits);
    ASSERT_EQ(BitsOf(set.Within(other)), bits & other_bits);
    ASSERT_EQ(set.Contains(other), (other_bits & ~bits).none());
  }
}

}  // namespace
}  // namespace hpvm::scheduler
