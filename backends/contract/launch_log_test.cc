// SPDX-License-Identifier: Apache-2.0
#include "backends/contract/launch_log.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/limits.h"

namespace hpvm {
namespace {

using Instance = std::array<uint64_t, 3>;

// Lines are ordered by repetition, node, instance (x fastest) and an instance's own order, whatever order they were
// printed in.
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

// A listener receives each line as it is printed, in that order, and at most as many as a log keeps.
TEST(LaunchLogTest, TellsAsItIsPrinted) {
  LaunchLog log;
  std::vector<std::string> told;
  log.SetListener([&](const PrintedLine& line) { told.push_back(std::to_string(line.node) + " " + line.text); });
  log.Print(1, {0, 0, 0}, "late");
  log.Print(0, {0, 0, 0}, "early\nsecond\n");
  EXPECT_EQ(told, (std::vector<std::string>{"1 late", "0 early", "0 second"}));
  EXPECT_EQ(log.TakeLines().front().text, "early");
  for (uint64_t i = 0; i < 2 * limits::kLogLinesMax; ++i) {
    log.Print(0, {i, 0, 0}, "x");
  }
  EXPECT_EQ(told.size(), limits::kLogLinesMax);
  log.SetListener(nullptr);
  log.Print(0, {0, 0, 0}, "quiet");
  EXPECT_EQ(told.size(), limits::kLogLinesMax);
  LaunchLog large;
  size_t bytes = 0;
  large.SetListener([&](const PrintedLine& line) { bytes += line.text.size(); });
  for (uint64_t i = 0; i < 100; ++i) {
    large.Print(0, {i, 0, 0}, std::string(limits::kLogLineBytesMax, 'x'));
  }
  EXPECT_LE(bytes, limits::kLogBytesMax);
  EXPECT_GT(bytes, limits::kLogBytesMax / 2);
}

// When there are too many, the lines of the lowest instances are kept and the others counted, for any order of printing
// and number of threads.
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

// Long lines are cut, and the total number of bytes is bounded.
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

// A line that would sort after the last kept line is refused before it is formatted.
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

// A printer uses the artifact's formats and ignores format numbers that do not exist.
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
