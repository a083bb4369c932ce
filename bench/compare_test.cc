// SPDX-License-Identifier: Apache-2.0
#include "bench/compare.h"

#include <cmath>

#include "gtest/gtest.h"

namespace hpvm::bench {
namespace {

TEST(CompareTest, MediansAndWhereTheyLie) {
  struct Row {
    std::vector<double> values;
    double median, low, high, confidence;
  };
  // The k-th lowest and highest of n values enclose the median with 1 - 2 P(fewer than k heads in n throws).
  const Row rows[] = {
      {{7}, 7, 7, 7, 0},
      {{4, 1, 3}, 3, 1, 4, 0.75},
      {{5, 1, 4, 2, 3}, 3, 1, 5, 0.9375},
      {{1, 2, 3, 4, 5, 6, 7}, 4, 1, 7, 1 - 2.0 / 128},
      {{8, 7, 6, 5, 4, 3, 2, 1}, 4.5, 2, 7, 1 - 2 * 9.0 / 256},
  };
  for (const Row& row : rows) {
    const MedianInterval found = FindMedian(row.values);
    EXPECT_DOUBLE_EQ(found.median, row.median);
    EXPECT_DOUBLE_EQ(found.low, row.low);
    EXPECT_DOUBLE_EQ(found.high, row.high);
    EXPECT_DOUBLE_EQ(found.confidence, row.confidence) << row.values.size();
  }
}

TEST(CompareTest, SlowerIsMoreThanChance) {
  const auto is_slower = [](std::vector<double> ratios) { return IsSlower(FindMedian(std::move(ratios)), 0.03); };
  EXPECT_TRUE(is_slower({1.04, 1.05, 1.04, 1.06, 1.01}));
  EXPECT_FALSE(is_slower({1.04, 1.05, 1.04, 1.06, 0.99})) << "One pair says otherwise.";
  EXPECT_FALSE(is_slower({1.02, 1.02, 1.02, 1.02, 1.02})) << "Within the slack.";
  EXPECT_FALSE(is_slower({2, 2, 2, 2})) << "Four pairs are too few.";
  EXPECT_FALSE(is_slower({0.5, 0.5, 0.5, 0.5, 0.5}));
}

// Every form of output that benchmarks print; peers, heads and lines that are not JSON are skipped.
TEST(CompareTest, ReadsWhatBenchmarksPrint) {
  const BenchOutput output = ReadBenchOutput(R"(hello
{"suite":"cpu","processor":"x","date":"y","command":"z"}
{"case":"nstream","verified":false,"contenders":{"ours":{"seconds":2},"ours_fast":{"seconds":1},"openmp":{"seconds":9}}}
{"suite":"prk","case":"star","verified":false,"contenders":{"ours":{"seconds":3,"verified":false}}}
{"suite":"gpu","figure":"copy to the device, GB/s","contenders":{"ours_opencl":40,"opencl":50}}
{"suite":"gpu","figure":"1000 dependent launches, us each","contenders":{"ours_opencl":4}}
{"suite":"overhead","case":"run/64","better":"higher","ours":100,"peers":{"grpc":300},"verified":true}
{"case":"run/4","figures":{"ours_per_s":10,"ours_p50_us":5,"ours_p99_us":9,"grpc_echo_per_s":20},"verified":false}
{"figure":"geometric mean against OpenMP","value":1.6,"asked":1.5}
)");
  const std::map<std::string, std::pair<double, Better>> want = {
      {"nstream", {2, Better::kLower}},
      {"nstream: ours_fast", {1, Better::kLower}},
      {"star", {3, Better::kLower}},
      {"copy to the device, GB/s: ours_opencl", {40, Better::kHigher}},
      {"1000 dependent launches, us each: ours_opencl", {4, Better::kLower}},
      {"run/64", {100, Better::kHigher}},
      {"run/4: ours_per_s", {10, Better::kHigher}},
      {"run/4: ours_p50_us", {5, Better::kLower}},
  };
  for (const auto& [name, figure] : output.figures) {
    ASSERT_TRUE(want.contains(name)) << name;
    EXPECT_EQ(figure.value, want.at(name).first) << name;
    EXPECT_EQ(figure.better, want.at(name).second) << name;
    EXPECT_EQ(figure.counts, name.find(", ") == name.npos) << name;
  }
  EXPECT_EQ(output.figures.size(), want.size());
  EXPECT_EQ(output.unverified, (std::set<std::string>{"star", "run/4"}));
}

BenchOutput Output(double a, double b) {
  BenchOutput output;
  output.figures["a"] = {a, Better::kLower};
  output.figures["b"] = {b, Better::kHigher};
  return output;
}

TEST(CompareTest, RatiosAndMeans) {
  Comparison comparison;
  for (int pair = 0; pair < 5; ++pair) {
    comparison.AddPair("cpu", Output(1, 8), Output(4, 2));
  }
  ASSERT_EQ(comparison.cases().size(), 2u);
  EXPECT_EQ(comparison.cases()[0].ratios, std::vector<double>(5, 4));  // Four times the time.
  EXPECT_EQ(comparison.cases()[1].ratios, std::vector<double>(5, 4));  // A quarter of the rate.
  ASSERT_EQ(comparison.Means().size(), 1u);
  EXPECT_NEAR(comparison.Means()[0].ratios[0], 4, 1e-12);
  EXPECT_TRUE(comparison.Fails());
}

// One case is slower, but not the mean; benchmarks other than cpu and gpu are only shown.
TEST(CompareTest, WhatFails) {
  Comparison comparison;
  for (int pair = 0; pair < 5; ++pair) {
    comparison.AddPair("cpu", Output(1, 1), Output(1.2, 1.2));
    comparison.AddPair("service", Output(1, 1), Output(2, 1));
  }
  EXPECT_FALSE(comparison.Fails());
  comparison.Fault("service/run", "not verified");
  EXPECT_TRUE(comparison.Fails());
}

TEST(CompareTest, WhatOneBuildLacksIsSkipped) {
  Comparison comparison;
  BenchOutput base = Output(1, 1), ours = Output(1, 1);
  base.figures.erase("b");
  base.figures["old"] = {1, Better::kLower};
  comparison.AddPair("cpu", base, ours);
  EXPECT_EQ(comparison.cases().size(), 1u);
  EXPECT_TRUE(comparison.skipped().contains("cpu/b"));
  EXPECT_TRUE(comparison.skipped().contains("cpu/old"));
}

}  // namespace
}  // namespace hpvm::bench
