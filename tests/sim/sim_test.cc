// SPDX-License-Identifier: Apache-2.0
// A short run of the simulation in every build; hpv-sim runs thousands of new seeds.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "server/process/log.h"
#include "tests/sim/world.h"

namespace hpvm::server::sim {
namespace {

class SimTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { StartLog("error"); }
};

std::string Explain(uint64_t seed, const World& world, const Verdict& verdict) {
  std::string text =
      "seed " + std::to_string(seed) + ": " + verdict.failure->checker + ": " + verdict.failure->sentence + "\n";
  for (const std::string& line : world.trace().last()) {
    text += line + "\n";
  }
  return text;
}

// Every promise holds in 2,000 worlds, or in as many as fit into 90 seconds on a slow machine.
TEST_F(SimTest, PromisesHold) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(90);
  uint64_t jobs = 0, starts = 0, seeds = 0;
  for (uint64_t seed = 0; seed < 2'000 && std::chrono::steady_clock::now() < end; ++seed, ++seeds) {
    World world(seed, /*prints=*/false);
    const Verdict verdict = world.Run();
    ASSERT_FALSE(verdict.failure.has_value()) << Explain(seed, world, verdict);
    jobs += verdict.jobs;
    starts += verdict.starts;
  }
  // Worlds without events would keep every promise.
  EXPECT_GT(jobs, seeds * 5);
  EXPECT_GT(starts, seeds * 2);
}

// A seed gives the same world each time.
TEST_F(SimTest, SeedsReplay) {
  std::set<uint64_t> hashes;
  for (uint64_t seed = 10'000; seed < 10'020; ++seed) {
    World first(seed, false), second(seed, false);
    const Verdict a = first.Run(), b = second.Run();
    EXPECT_EQ(a.trace_hash, b.trace_hash) << "seed " << seed;
    hashes.insert(a.trace_hash);
  }
  EXPECT_EQ(hashes.size(), 20u);
}

}  // namespace
}  // namespace hpvm::server::sim
