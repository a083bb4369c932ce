// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace hpvm::scheduler {
namespace {

constexpr uint64_t kUnit = Arena::kAlignment;

// Random users: no two share memory, nothing crosses a piece or the end, and when all are freed everything fits again.
TEST(ArenaTest, RandomUsersStayApart) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRng rng(seed);
    const uint64_t piece = seed % 3 == 0 ? ~uint64_t{0} : kUnit * (8 + rng.Below(8));
    const uint64_t bytes_max = kUnit * (40 + rng.Below(40));
    Arena arena(bytes_max, piece);
    struct Used {
      uint64_t offset, bytes;
    };
    std::vector<Used> used;
    int64_t now = 0;
    for (int i = 0; i < 300; ++i) {
      now += static_cast<int64_t>(rng.Below(10));
      if (!used.empty() && rng.Below(2) == 0) {
        const size_t index = rng.Below(used.size());
        arena.Free(used[index].offset, used[index].bytes, Duration(now + static_cast<int64_t>(rng.Below(20))));
        used.erase(used.begin() + static_cast<ptrdiff_t>(index));
        continue;
      }
      const uint64_t bytes = 1 + rng.Below(8 * kUnit);
      const std::optional<uint64_t> offset = arena.Allocate(bytes, Duration(now));
      if (!offset) {
        continue;
      }
      ASSERT_EQ(*offset % kUnit, 0u);
      ASSERT_LE(*offset + bytes, bytes_max);
      ASSERT_LE(*offset + bytes, arena.bytes_high());
      ASSERT_EQ(*offset / piece, (*offset + bytes - 1) / piece);
      for (const Used& other : used) {
        ASSERT_TRUE(*offset + Arena::Round(bytes) <= other.offset ||
                    other.offset + Arena::Round(other.bytes) <= *offset);
      }
      used.push_back({*offset, bytes});
    }
    for (const Used& u : used) {
      arena.Free(u.offset, u.bytes, Duration(now));
    }
    arena.ReleaseHeld();
    EXPECT_TRUE(arena.Allocate(std::min(piece, bytes_max) / kUnit * kUnit, Duration(now)).has_value());
  }
}

// Memory in use until later is avoided while there is other memory, and taken before the arena refuses.
TEST(ArenaTest, HoldsBackWhatIsStillInUse) {
  Arena arena(2 * kUnit);
  ASSERT_EQ(arena.Allocate(kUnit, Duration(0)), 0u);
  arena.Free(0, kUnit, Duration(10));
  EXPECT_EQ(arena.Allocate(kUnit, Duration(5)), kUnit);
  EXPECT_EQ(arena.Allocate(kUnit, Duration(5)), 0u);
  EXPECT_FALSE(arena.Allocate(kUnit, Duration(5)).has_value());
}

// The smallest sufficient hole is taken.
TEST(ArenaTest, TakesTheHoleThatFitsBest) {
  Arena arena;
  for (const uint64_t units : {3, 1, 2, 1, 4}) {
    ASSERT_TRUE(arena.Allocate(units * kUnit, Duration(0)).has_value());
  }
  arena.Free(0, 3 * kUnit, Duration(0));
  arena.Free(4 * kUnit, 2 * kUnit, Duration(0));
  EXPECT_EQ(arena.Allocate(2 * kUnit, Duration(0)), 4 * kUnit);
  EXPECT_EQ(arena.Allocate(kUnit, Duration(0)), 0u);
}

}  // namespace
}  // namespace hpvm::scheduler
