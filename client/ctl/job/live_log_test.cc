// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/job/live_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

namespace hpvm::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::RunLog LogOf(std::initializer_list<std::pair<uint32_t, const char*>> lines) {
  v1::RunLog log;
  for (const auto& [x, text] : lines) {
    v1::LogLine& line = *log.add_lines();
    line.set_node("node");
    line.mutable_instance()->set_x(x);
    line.set_text(text);
  }
  return log;
}

std::vector<std::string> TextsOf(const v1::RunLog& log) {
  std::vector<std::string> texts;
  for (const v1::LogLine& line : log.lines()) {
    texts.push_back(line.text());
  }
  return texts;
}

// No line is shown twice or left out, including equal lines, in whatever order they came.
TEST(LiveLogTest, LeavesWhatWasNotShown) {
  LiveLog live;
  live.Add(LogOf({{1, "b"}, {0, "a"}}));
  live.Add(LogOf({{0, "again"}}));
  v1::RunLog log = LogOf({{0, "a"}, {0, "again"}, {0, "again"}, {1, "b"}, {2, "a"}, {2, "c"}});
  log.set_lines_dropped(7);
  live.RemoveFrom(&log);
  EXPECT_THAT(TextsOf(log), ElementsAre("again", "a", "c"));
  EXPECT_EQ(log.lines_dropped(), 7u);
}

// Lines that another attempt has shown are not counted.
TEST(LiveLogTest, ForgetsALostAttempt) {
  LiveLog live;
  live.Add(LogOf({{0, "a"}}));
  EXPECT_FALSE(live.empty());
  live.Clear();
  EXPECT_TRUE(live.empty());
  v1::RunLog log = LogOf({{0, "a"}});
  live.RemoveFrom(&log);
  EXPECT_THAT(TextsOf(log), ElementsAre("a"));
  live.Add(log);
  live.RemoveFrom(&log);
  EXPECT_THAT(TextsOf(log), IsEmpty());
}

}  // namespace
}  // namespace hpvm::ctl
