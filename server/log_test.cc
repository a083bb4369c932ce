// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <gtest/gtest.h>

namespace hpvm {
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
      {"Nul", std::string("a\0b", 3), "a\\x00b"},
      {"Delete", "\x7f", "\\x7f"},
      {"Utf8", "größe €", "größe €"},
      {"C1", "\xc2\x9b", "\\xc2\\x9b"},
      {"NotUtf8", "\xff\xc3(", "\\xff\\xc3("},
      {"CutShort", "\xe2\x82", "\\xe2\\x82"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(EscapeForLog(c.text), c.want) << c.name;
  }
  EXPECT_EQ(EscapeForLog("abcdef", 3), "abc…");
}

}  // namespace
}  // namespace hpvm
