// SPDX-License-Identifier: Apache-2.0
// A short run of the cluster's simulation in every build; hpv-sim --cluster runs thousands of new seeds.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/sim/cluster_world.h"

namespace hpvm::server::sim {
namespace {

std::string Explain(uint64_t seed, const ClusterWorld& world, const Verdict& verdict) {
  std::string text = "seed " + std::to_string(seed) + " (" + world.plan().Describe() +
                     "): " + verdict.failure->checker + ": " + verdict.failure->sentence + "\n";
  for (const std::string& line : world.trace().last()) {
    text += line + "\n";
  }
  return text;
}

// Every promise holds in so many worlds, or in as many as fit into 30 seconds on a slow machine.
void ExpectPromises(ClusterWorld::Store store, uint64_t worlds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  uint64_t jobs = 0, runs = 0, starts = 0, seeds = 0;
  for (; seeds < worlds && std::chrono::steady_clock::now() < end; ++seeds) {
    ClusterWorld world(seeds, /*prints=*/false, store);
    const Verdict verdict = world.Run();
    ASSERT_FALSE(verdict.failure.has_value()) << Explain(seeds, world, verdict);
    jobs += verdict.jobs;
    runs += verdict.runs;
    starts += verdict.starts;
  }
  // Worlds without events would keep every promise.
  EXPECT_GT(jobs, seeds * 10);
  EXPECT_GT(runs, seeds * 10);
  EXPECT_GT(starts, seeds * 3);
}

TEST(SimClusterTest, PromisesHold) { ExpectPromises(ClusterWorld::Store::kModel, 2'000); }
TEST(SimClusterTest, PromisesHoldOnSqlite) { ExpectPromises(ClusterWorld::Store::kSqlite, 300); }

// A seed gives the same world each time.
TEST(SimClusterTest, SeedsReplay) {
  for (uint64_t seed = 10'000; seed < 10'020; ++seed) {
    ClusterWorld first(seed, false);
    const uint64_t hash = first.Run().trace_hash;
    ClusterWorld second(seed, false);
    EXPECT_EQ(hash, second.Run().trace_hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hpvm::server::sim
