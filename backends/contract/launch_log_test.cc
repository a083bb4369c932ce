// SPDX-License-Identifier: Apache-2.0
#include "backends/contract/launch_log.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/limits.h"

namespace hpvm {
namespace {

using Instance = std::array<uint64_t, 3>;

// Lines come by repetition, node, instance (x fastest) and in an instance's own order, whatever order they were printed
// in.
TEST(LaunchLogTest, Orders) {
  LaunchLog log;
  log.Print(1, {0, 0, 0}, "node 1");
  log.Print(0, {0, 1, 0}, "y");
  log.Print(0, {1, 0, 0}, "x first\nx second\n");
  log.Print(0, {0, 0, 0}, "zero\n\n");
  log.SetRepetition(1);
  log.Print(0, {0, 0, 0}, "again");
  std::vector<std::string> texts;
  for (const PrintedLine& line : log.TakeLines()) {
    texts.push_back(line.text);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"zero", "", "x first", "x second", "y", "node 1", "again"}));
  EXPECT_EQ(log.dropped(), 0u);
}

// Of too many lines those of the lowest instances stay, and the rest is counted, in any order of printing and from
// several threads.
TEST(LaunchLogTest, KeepsTheFirstLines) {
  constexpr uint64_t kPrinted = 20'000;
  for (const bool backwards : {false, true}) {
    LaunchLog log;
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = t; i < kPrinted; i += 4) {
          const uint64_t x = backwards ? kPrinted - 1 - i : i;
          log.Print(0, Instance{x, 0, 0}, std::to_string(x));
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    const std::vector<PrintedLine> lines = log.TakeLines();
    ASSERT_EQ(lines.size(), limits::kLogLinesMax);
    for (uint64_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i].text, std::to_string(i));
    }
    EXPECT_EQ(log.dropped(), kPrinted - limits::kLogLinesMax);
  }
}

// Long lines are cut, and the bytes of all together are bounded.
TEST(LaunchLogTest, BoundsBytes) {
  LaunchLog log;
  for (uint64_t i = 0; i < 100; ++i) {
    log.Print(0, Instance{i, 0, 0}, std::string(100'000, 'a'));
  }
  size_t bytes = 0;
  const std::vector<PrintedLine> lines = log.TakeLines();
  for (const PrintedLine& line : lines) {
    EXPECT_EQ(line.text.size(), limits::kLogLineBytesMax + 3);
    bytes += line.text.size();
  }
  EXPECT_LE(bytes, limits::kLogBytesMax);
  EXPECT_EQ(lines.size() + log.dropped(), 100u);
}

// What would sort after the last line that is kept is refused before it is formatted.
TEST(LaunchLogTest, RefusesEarly) {
  LaunchLog log;
  EXPECT_TRUE(log.Takes(0, {1u << 20, 0, 0}));
  for (uint64_t i = 0; i < 3 * limits::kLogLinesMax; ++i) {
    log.Print(0, Instance{i, 0, 0}, "line");
  }
  EXPECT_TRUE(log.Takes(0, {5, 0, 0}));
  EXPECT_FALSE(log.Takes(0, {1u << 20, 0, 0}));
  EXPECT_FALSE(log.Takes(1, {0, 0, 0}));
}

// A printer formats with the artifact's formats and ignores numbers that it does not have.
TEST(LaunchLogTest, PrinterFormats) {
  LaunchLog log;
  Artifact artifact;
  artifact.formats = {"x = %d"};
  artifact.format_types = {{ir::Type::kI32}};
  LaunchPrinter printer(&log, 7, artifact);
  const uint64_t value = 0xffffffffu;
  printer.Print({3, 2, 1}, 0, {&value, 1});
  printer.Print({0, 0, 0}, 1, {&value, 1});
  LaunchPrinter(nullptr, 7, artifact).Print({0, 0, 0}, 0, {&value, 1});
  const std::vector<PrintedLine> lines = log.TakeLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].node, 7u);
  EXPECT_EQ(lines[0].instance, (Instance{3, 2, 1}));
  EXPECT_EQ(lines[0].text, "x = -1");
}

// Findings beyond the limit are counted.
TEST(LaunchLogTest, BoundsFindings) {
  LaunchLog log;
  for (uint32_t i = 0; i < limits::kFindingsMax + 5; ++i) {
    log.AddFinding({.node = i, .kind = "race", .message = {}, .instances = {}, .buffer = {}, .place = {}});
  }
  EXPECT_EQ(log.TakeFindings().size(), limits::kFindingsMax);
  EXPECT_EQ(log.findings_dropped(), 5u);
}

}  // namespace
}  // namespace hpvm
