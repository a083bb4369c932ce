// SPDX-License-Identifier: Apache-2.0
#include "server/process/log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "server/process/log_limit.h"

namespace hpvm::server {
namespace {

// A tenant's text cannot start a line, move the cursor or hide: only printable UTF-8 passes.
TEST(LogTest, EscapesControlCharacters) {
  struct Case {
    const char* name;
    std::string text, want;
  };
  const Case cases[] = {
      {"Plain", "job=job-1 ends", "job=job-1 ends"},
      {"NewLine", "a\nb\r", "a\\nb\\x0d"},
      {"Escape", "\x1b[2J", "\\x1b[2J"},
      {"Direction",
       "a\xe2\x80\xae"
       "b\xe2\x81\xa6"
       "c",
       "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c"},
      {"Dash",
       "a\xe2\x80\x94"
       "b",
       "a\xe2\x80\x94"
       "b"},
      {"Nul", std::string("a\0b", 3), "a\\x00b"},
      {"Delete", "\x7f", "\\x7f"},
      {"Utf8", "größe €", "größe €"},
      {"C1", "\xc2\x9b", "\\xc2\\x9b"},
      {"NotUtf8", "\xff\xc3(", "\\xff\\xc3("},
      {"CutShort", "\xe2\x82", "\\xe2\\x82"},
      {"Overlong", "\xe0\x80\x80", "\\xe0\\x80\\x80"},
      {"Surrogate", "\xed\xa0\x80", "\\xed\\xa0\\x80"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(EscapeForLog(c.text), c.want) << c.name;
  }
  EXPECT_EQ(EscapeForLog("abcdef", 3), "abc…");
}

constexpr int64_t kUnixNs = 1'767'323'045'678'900'000;

TEST(LogTest, FieldsWithoutValueAreLeftOut) {
  const LogFields fields = {{"job", "job-1"}, {"error", ""}, {"tenant", "a"}};
  EXPECT_EQ(FormatLogLine(false, kUnixNs, LogLevel::kInfo, "Job ended", fields),
            "2026-01-02T03:04:05.678Z info Job ended job=job-1 tenant=a");
  EXPECT_EQ(FormatLogLine(true, kUnixNs, LogLevel::kInfo, "Job ended", fields),
            "{\"time\":\"2026-01-02T03:04:05.678Z\",\"level\":\"info\",\"message\":\"Job ended\",\"job\":\"job-1\","
            "\"tenant\":\"a\"}");
}

// Fields keep their borders whatever a tenant's values contain, in both formats.
TEST(LogTest, FieldsCannotBeForged) {
  struct Case {
    const char *name, *value, *text, *json;
  };
  const Case cases[] = {
      {"Plain", "job-1", "job-1", "\"job-1\""},
      {"Blank", "a tenant=b", "\"a tenant=b\"", "\"a tenant=b\""},
      {"Quote", "a\" tenant=b", "\"a\\\" tenant=b\"", "\"a\\\" tenant=b\""},
      {"NewLine", "a\nb", "\"a\\nb\"", "\"a\\\\nb\""},
      {"Control", "\x1b]", "\"\\x1b]\"", "\"\\\\x1b]\""},
      {"Backslash", "a\\", "\"a\\\"", "\"a\\\\\""},
  };
  for (const Case& c : cases) {
    const LogFields fields = {{"job", c.value}};
    EXPECT_EQ(FormatLogLine(false, kUnixNs, LogLevel::kInfo, "Job ended", fields),
              std::string("2026-01-02T03:04:05.678Z info Job ended job=") + c.text)
        << c.name;
    EXPECT_EQ(FormatLogLine(true, kUnixNs, LogLevel::kWarning, "Job \"ended\"", fields),
              std::string("{\"time\":\"2026-01-02T03:04:05.678Z\",\"level\":\"warning\",\"message\":\"Job "
                          "\\\"ended\\\"\",\"job\":") +
                  c.json + "}")
        << c.name;
  }
}

// A value of any length yields a line of a kibibyte.
TEST(LogTest, CutsLongValues) {
  const std::string line = FormatLogLine(false, kUnixNs, LogLevel::kInfo, "x", {{"error", std::string(100'000, 'a')}});
  EXPECT_LT(line.size(), 1'200u);
  EXPECT_TRUE(line.ends_with("aaa…")) << line.substr(line.size() - 10);
}

// 100 lines a second from one place, then their number; other places are not affected.
TEST(LogTest, LimitsEachPlace) {
  LogLimit limit;
  const char* file = "a.cc";
  Time now{std::chrono::hours(1)};
  int admitted = 0;
  for (int i = 0; i < 250; ++i) {
    admitted += limit.Admit({file, 1}, now) ? 1 : 0;
  }
  EXPECT_EQ(admitted, 100);
  EXPECT_TRUE(limit.Admit({file, 2}, now));
  EXPECT_TRUE(limit.Take(now).empty()) << "Its second is not over.";
  now += std::chrono::milliseconds(1'001);
  EXPECT_FALSE(limit.Admit({file, 1}, now)) << "The summary comes first.";
  const std::vector<LogLimit::Summary> taken = limit.Take(now);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].file, "a.cc");
  EXPECT_EQ(taken[0].line, 1u);
  EXPECT_EQ(taken[0].left_out, 151u);
  EXPECT_TRUE(limit.Admit({file, 1}, now));
  EXPECT_TRUE(limit.Take(now, /*all=*/true).empty());
}

// Logs 2,500 large lines from 25 places: more than the pipe and the queue hold.
void LogMuch(const std::string& text) {
  for (int i = 0; i < 100; ++i) {
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
    LogInfo(text);
  }
}

// A stderr that nobody reads blocks neither logging nor the end of the process; lost lines are counted.
TEST(LogTest, HungStderrBlocksNobody) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // Instead of hanging.
    dup2(ends[1], STDERR_FILENO);
    StartLog("info");
    const Time start = RealClock().Now();
    LogMuch(std::string(4'000, 'x'));
    const bool in_time = RealClock().Now() - start < std::chrono::seconds(5);
    const LogCounts counts = CountLog();
    const bool counted = counts.lines + counts.limited == 2'500 && counts.overflown > 0;
    std::exit(in_time && counted ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(ends[0]);
  close(ends[1]);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Lines logged before exit() are written completely.
TEST(LogTest, ExitWritesWhatWaits) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    StartLog("warning", "json");
    LogInfo("Below the level");
    for (int i = 0; i < 150; ++i) {
      LogError("Failed", {{"job", "job-" + std::to_string(i)}});
    }
    std::exit(0);
  }
  close(ends[1]);
  std::string text;
  char chunk[4096];
  for (ssize_t count; (count = read(ends[0], chunk, sizeof(chunk))) > 0;) {
    text.append(chunk, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(text.find("Below"), std::string::npos);
  EXPECT_NE(text.find("\"message\":\"Failed\",\"job\":\"job-0\"}\n"), std::string::npos);
  EXPECT_NE(text.find("\"job\":\"job-99\"}\n"), std::string::npos);
  EXPECT_EQ(text.find("\"job\":\"job-149\"}"), std::string::npos);
  EXPECT_NE(text.find("\"count\":\"50\""), std::string::npos) << text.substr(text.size() - 300);
}

}  // namespace
}  // namespace hpvm::server
