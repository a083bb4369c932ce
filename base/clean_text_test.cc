// SPDX-License-Identifier: Apache-2.0
#include "base/clean_text.h"

#include <gtest/gtest.h>

namespace hpvm {
namespace {

// Clean text is unchanged; control characters in either form and invalid UTF-8 become '?'.
TEST(CleanTextTest, Cleans) {
  const struct {
    std::string_view text;
    std::string_view clean;
  } cases[] = {
      {"plain", "plain"},
      {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"a\tb\nc", "a\tb\nc"},
      {"\x1b[2J", "?[2J"},
      {"\x7f\x01\r", "???"},
      {"\xc2\x9b"
       "2J",
       "?2J"},                   // The one-character form of ESC [.
      {"\xc2\xa0", "\xc2\xa0"},  // The first character beyond C1.
      {"\xff\xfe", "??"},
      {"\xc0\xaf", "??"},       // Overlong.
      {"\xed\xa0\x80", "???"},  // A surrogate.
      {"\xe2\x82", "??"},       // Truncated.
  };
  for (const auto& c : cases) {
    EXPECT_EQ(CleanText(c.text, 100), c.clean);
    EXPECT_EQ(IsCleanText(c.text, true), c.text == c.clean) << c.text;
    EXPECT_TRUE(IsCleanText(CleanText(c.text, 100), true));
  }
  EXPECT_EQ(CleanText("a\tb\nc", 100, false), "a?b?c");
  EXPECT_FALSE(IsCleanText("a\nb", false));
}

// Long text is cut between characters and ends in dots, within the limit.
TEST(CleanTextTest, Cuts) {
  EXPECT_EQ(CleanText("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(CleanText("abcdefghi", 8), "abcde...");
  EXPECT_EQ(CleanText("abcd\xe2\x82\xac"
                      "efgh",
                      8),
            "abcd...");
}

}  // namespace
}  // namespace hpvm
