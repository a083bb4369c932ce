// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/failpoint.h"
#include "tests/schedsim/world.h"

namespace hpvm::schedsim {
namespace {

// Every world keeps all promises, and the worlds differ.
TEST(SchedSimTest, Worlds) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const Verdict verdict = RunWorld(seed);
    EXPECT_TRUE(verdict.faults.empty()) << "seed " << seed << ": " << verdict.faults.front();
    counts.Add(verdict.counts);
  }
  EXPECT_GT(counts.losses, 20u);
  EXPECT_GT(counts.kept_values, 20u);
  EXPECT_GT(counts.evictions, 20u);
  EXPECT_GT(counts.spills, 5u);
  EXPECT_GT(counts.parts, 20u);
  EXPECT_GT(counts.with_carries, 10u);
}

// A seed determines a world.
TEST(SchedSimTest, ASeedGivesTheSameWorldTwice) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(RunWorld(seed).counts.ToString(), RunWorld(seed).counts.ToString()) << seed;
  }
}

}  // namespace
}  // namespace hpvm::schedsim
