// SPDX-License-Identifier: Apache-2.0
// A short run of the store's simulation in every build.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/sim/store_world.h"

namespace hpvm::server::sim {
namespace {

// Acknowledged writes are there after every crash and loss of power, complete, and nothing else; stale writes change
// nothing.
TEST(SimStoreTest, PromisesHold) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  uint64_t writes = 0, opens = 0, seeds = 0;
  for (; seeds < 500 && std::chrono::steady_clock::now() < end; ++seeds) {
    StoreWorld world(seeds, /*prints=*/false);
    const Verdict verdict = world.Run();
    ASSERT_FALSE(verdict.failure.has_value())
        << "seed " << seeds << ": " << verdict.failure->checker << ": " << verdict.failure->sentence;
    writes += verdict.steps;
    opens += verdict.starts;
  }
  EXPECT_GT(writes, 50 * seeds);
  EXPECT_GT(opens, 5 * seeds);
}

// A seed gives the same world each time.
TEST(SimStoreTest, SeedsReplay) {
  for (uint64_t seed = 1'000; seed < 1'020; ++seed) {
    StoreWorld first(seed, false);
    const uint64_t hash = first.Run().trace_hash;
    StoreWorld second(seed, false);
    EXPECT_EQ(hash, second.Run().trace_hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hpvm::server::sim
