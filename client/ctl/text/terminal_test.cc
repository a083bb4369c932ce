// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/terminal.h"

#include <cstdlib>

#include "client/ctl/text/text.h"
#include "gtest/gtest.h"

namespace hpvm::ctl {
namespace {

class TerminalTest : public ::testing::Test {
 protected:
  ~TerminalTest() override { SetTerminal({}); }
  static bool IsUtf8(const char* all, const char* type, const char* lang) {
    setenv("LC_ALL", all, 1);
    setenv("LC_CTYPE", type, 1);
    setenv("LANG", lang, 1);
    return FindTerminal(Colours::kNever).is_utf8;
  }
};

TEST_F(TerminalTest, Locales) {
  EXPECT_TRUE(IsUtf8("", "", "en_US.UTF-8"));
  EXPECT_TRUE(IsUtf8("C.utf8", "", "C"));
  EXPECT_TRUE(IsUtf8("", "C.UTF-8", "C"));
  EXPECT_FALSE(IsUtf8("C", "C.UTF-8", "C.UTF-8"));
  EXPECT_FALSE(IsUtf8("", "POSIX", "C.UTF-8"));
  EXPECT_FALSE(IsUtf8("", "", ""));
}

TEST_F(TerminalTest, Ascii) {
  const std::string text = "job-0193\u2026 \u2192 \u00fc \U0001f600 \xff \xe2\x80";
  EXPECT_EQ(Shown(text), text);
  SetTerminal({.is_utf8 = false});
  EXPECT_EQ(Shown(text), "job-0193... -> \\u00fc \\U0001f600 \\xff \\xe2\\x80");
  EXPECT_EQ(Printable("\u2026\x1b"), "...\\x1b");
  EXPECT_EQ(Table({{"A", "B"}, {"\u2026", "x"}}), "A    B\n...  x\n");
}

TEST_F(TerminalTest, Colours) {
  EXPECT_EQ(ColouredState("FAILED"), "FAILED");
  EXPECT_EQ(ErrorHead(), "hpvmctl:");
  SetTerminal({.output_colours = true});
  EXPECT_EQ(ColouredState("FAILED"), "\x1b[31mFAILED\x1b[0m");
  EXPECT_EQ(ColouredState("RUNNING, cancellation requested"), "\x1b[33mRUNNING\x1b[0m, cancellation requested");
  EXPECT_EQ(ColouredState("FAILEDX"), "FAILEDX");
  EXPECT_EQ(ErrorHead(), "hpvmctl:");  // Standard error is another file, which may be closed.
  // Only the column of states is coloured, and its width does not change.
  EXPECT_EQ(Table({{"STATE", "NAME"}, {"DEAD", "DEAD"}}), "STATE  NAME\n\x1b[31mDEAD\x1b[0m   DEAD\n");
  SetTerminal({.error_colours = true});
  EXPECT_EQ(ErrorHead(), "\x1b[31mhpvmctl:\x1b[0m");
}

TEST_F(TerminalTest, WhenThereAreColours) {
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_FALSE(FindTerminal(Colours::kNever).output_colours);
  EXPECT_TRUE(FindTerminal(Colours::kAlways).output_colours);
  setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(FindTerminal(Colours::kAlways).error_colours);  // Requested explicitly.
  EXPECT_FALSE(FindTerminal(Colours::kAuto).error_colours);
  unsetenv("NO_COLOR");
}

TEST_F(TerminalTest, TablesCountCharacters) {
  EXPECT_EQ(Table({{"\u00fc\u00fc", "b"}, {"aa", "b"}}), "\u00fc\u00fc  b\naa  b\n");
}

}  // namespace
}  // namespace hpvm::ctl
