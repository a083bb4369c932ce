// SPDX-License-Identifier: Apache-2.0
#include "base/diagnostic_list.h"

#include <string>

#include "gtest/gtest.h"

#include "base/text_marks.h"

namespace hpvm {
namespace {

Diagnostic Error(std::string text) { return {Severity::kError, "module \"m\"", 7, std::move(text)}; }
Diagnostic Warning(std::string text) { return {Severity::kWarning, "/nodes", std::nullopt, std::move(text)}; }

TEST(Shortened, FoldsWhatWasFoundSeveralTimes) {
  uint64_t omitted = 0;
  const Diagnostics listed =
      Shortened({Error("A."), Warning("A."), Error("A."), Error("B."), Error("A.")}, 10, &omitted);
  EXPECT_EQ(ToString(listed),
            "module \"m\" at byte 7: A. (Found 3 times.)\n/nodes: warning: A.\nmodule \"m\" at byte 7: B.");
  EXPECT_EQ(omitted, 0u);
}

TEST(Shortened, WarningsGiveWayToErrors) {
  Diagnostics found;
  for (int i = 0; i < 150; ++i) {
    found.push_back(Warning("Warning " + std::to_string(i) + "."));
  }
  found.push_back(Error("The one."));
  found.push_back(Warning("The last."));
  uint64_t omitted = 5;
  const Diagnostics listed = Shortened(found, 100, &omitted);
  ASSERT_EQ(listed.size(), 100u);
  EXPECT_EQ(listed[98].message, "Warning 98.");
  EXPECT_EQ(listed[99].message, "The one.");
  EXPECT_EQ(omitted, 5u + 52u);
}

TEST(Shortened, CountsWhatIsLeftOut) {
  uint64_t omitted = 0;
  EXPECT_EQ(Shortened({Error("A."), Error("B."), Error("B.")}, 1, &omitted).size(), 1u);
  EXPECT_EQ(omitted, 2u);
}

TEST(MarkAt, KnowsWhatTurnsText) {
  for (const char* mark : {"\u061c", "\u200e", "\u200f", "\u2028", "\u202a", "\u202e", "\u2066", "\u2069"}) {
    EXPECT_EQ(MarkAt(mark).bytes, std::string_view(mark).size()) << mark;
  }
  EXPECT_EQ(MarkAt("\u202e.").code, 0x202eu);
  for (const char* text : {"", "a", "\u2026", "\u2065", "\u206a", "\u2010", "\u00e9", "\xe2", "\xe2\x80", "\xd8"}) {
    EXPECT_EQ(MarkAt(text).bytes, 0u) << text;
  }
}

TEST(Utf8Bytes, OfWholeCharactersOnly) {
  for (const char* text : {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(Utf8Bytes(text), std::string_view(text).size()) << text;
  }
  for (const char* text : {"", "\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xe2\x82",
                           "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(Utf8Bytes(text), 0u) << text;
  }
}

}  // namespace
}  // namespace hpvm
