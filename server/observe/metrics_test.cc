// SPDX-License-Identifier: Apache-2.0
#include "server/observe/metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

namespace hpvm::server {
namespace {

// A value equal to a bound belongs to its bucket, a greater one to the next, the greatest to the last.
TEST(MetricTest, HistogramBounds) {
  Histogram histogram(kSecondsBuckets);
  const auto& bounds = kSecondsBuckets.bounds;
  for (size_t i = 1; i < bounds.size(); ++i) {
    ASSERT_LT(bounds[i - 1], bounds[i]);
  }
  histogram.Observe(uint64_t{0});
  histogram.Observe(bounds[0]);
  histogram.Observe(bounds[0] + 1);
  histogram.Observe(UINT64_MAX / 2);
  histogram.Observe(Duration(-5));
  EXPECT_EQ(histogram.count(0), 3u);
  EXPECT_EQ(histogram.count(1), 1u);
  EXPECT_EQ(histogram.count(bounds.size()), 1u);
}

// The first names have entries, all others share one: names beyond the limit take no memory.
TEST(MetricTest, TableIsBounded) {
  LabelTable<AtomicCounter, 10> table;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 1'000; ++i) {
      table.Find("tenant-" + std::to_string(i)).value.Add();
    }
  }
  std::map<std::string, uint64_t> seen;
  table.ForEach([&](const auto& entry) { seen[entry.name] += entry.value.value(); });
  EXPECT_EQ(seen.size(), 11u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(seen["tenant-" + std::to_string(i)], 2u) << i;
  }
  EXPECT_EQ(seen["other"], 2u * 990);
}

// No count is lost when threads use new names at the same time.
TEST(MetricTest, TableCountsFromManyThreads) {
  LabelTable<AtomicCounter, 50> table;
  constexpr int kThreads = 8, kRounds = 2'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&table] {
      for (int i = 0; i < kRounds; ++i) {
        table.Find("t" + std::to_string(i % 70)).value.Add();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  uint64_t sum = 0, entries = 0;
  table.ForEach([&](const auto& entry) {
    sum += entry.value.value();
    ++entries;
  });
  EXPECT_EQ(sum, uint64_t{kThreads} * kRounds);
  EXPECT_EQ(entries, 51u);
}

}  // namespace
}  // namespace hpvm::server
