// SPDX-License-Identifier: Apache-2.0
#include "server/observe/trace_context.h"

#include <gtest/gtest.h>

#include <set>

#include "base/bytes.h"

namespace hpvm::server {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c", kSpan[] = "b7ad6b7169203331";

std::string Parent(const std::string& version, const std::string& trace, const std::string& span,
                   const std::string& flags) {
  return version + "-" + trace + "-" + span + "-" + flags;
}

// Valid headers according to the specification are parsed, and written as version 00.
TEST(TraceContextTest, ReadsTraceparent) {
  struct Case {
    const char* name;
    std::string text;
    bool sampled;
  };
  const Case cases[] = {
      {"Sampled", Parent("00", kTrace, kSpan, "01"), true},
      {"NotSampled", Parent("00", kTrace, kSpan, "00"), false},
      {"UnknownFlags", Parent("00", kTrace, kSpan, "ff"), true},
      {"UnknownFlagsNotSampled", Parent("00", kTrace, kSpan, "fe"), false},
      {"LaterVersion", Parent("01", kTrace, kSpan, "01"), true},
      {"LaterVersionWithMore", Parent("cc", kTrace, kSpan, "01") + "-what-comes", true},
  };
  for (const Case& c : cases) {
    const std::optional<TraceContext> context = ParseTraceparent(c.text);
    ASSERT_TRUE(context.has_value()) << c.name;
    EXPECT_EQ(ToHex(context->trace), kTrace) << c.name;
    EXPECT_EQ(ToHex(context->span), kSpan) << c.name;
    EXPECT_EQ(context->sampled, c.sampled) << c.name;
    EXPECT_EQ(FormatTraceparent(*context), Parent("00", kTrace, kSpan, c.sampled ? "01" : "00")) << c.name;
  }
}

// All others are ignored.
TEST(TraceContextTest, IgnoresMalformedTraceparent) {
  const std::string good = Parent("00", kTrace, kSpan, "01");
  const std::string cases[] = {
      "",
      "00",
      good.substr(0, 54),
      good + "-",
      good + "-more",
      good + " ",
      " " + good,
      Parent("ff", kTrace, kSpan, "01"),
      Parent("FF", kTrace, kSpan, "01"),
      Parent("0", kTrace, kSpan, "01") + "0",
      Parent("01", kTrace, kSpan, "01") + ".more",
      Parent("00", "0AF7651916CD43DD8448EB211C80319C", kSpan, "01"),
      Parent("00", kTrace, "B7AD6B7169203331", "01"),
      Parent("00", std::string(32, '0'), kSpan, "01"),
      Parent("00", kTrace, std::string(16, '0'), "01"),
      Parent("00", std::string(31, 'a') + "g", kSpan, "01"),
      Parent("00", kTrace, kSpan, "0x"),
      Parent("00", kTrace, kSpan, "1"),
      std::string(55, '-'),
      std::string(55, '\0'),
      std::string(100'000, 'a'),
  };
  for (const std::string& text : cases) {
    EXPECT_FALSE(ParseTraceparent(text).has_value()) << text.substr(0, 80);
  }
  // Each single byte matters.
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = 'X';
    EXPECT_FALSE(ParseTraceparent(bad).has_value()) << i;
  }
}

// Valid lists, and violations of each of the specification's rules.
TEST(TraceContextTest, ChecksTracestate) {
  std::string members32 = "a0=1";
  for (int i = 1; i < 32; ++i) {
    members32 += ",a" + std::to_string(i) + "=1";
  }
  struct Case {
    std::string text;
    bool valid;
  };
  const Case cases[] = {
      {"rojo=00f067aa0ba902b7", true},
      {"rojo=1,congo=t61rcWkgMzE", true},
      {"rojo=1 ,\tcongo=2", true},
      {"a=1,,b=2", true},
      {"1a@sys=x y", true},
      {"a_-*/=!", true},
      {members32, true},
      {members32 + ",b=1", false},
      {"", false},
      {",", false},
      {"a", false},
      {"a=", false},
      {"=1", false},
      {"A=1", false},
      {"1a=1", false},
      {"a=1=2", false},
      {"a=1,a=2", false},
      {"a@b@c=1", false},
      {"a@" + std::string(15, 'b') + "=1", false},
      {std::string(257, 'a') + "=1", false},
      {"a=" + std::string(257, 'b'), false},
      {"a=\x01", false},
      {"a=\xc3\xa9", false},
      {"a=" + std::string(200, 'b') + ",b=" + std::string(200, 'b') + ",c=" + std::string(200, 'b'), false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(IsTracestate(c.text), c.valid) << c.text;
  }
}

// Ids come from the given generator, and are never repeated.
TEST(TraceContextTest, MakesIds) {
  SeededRng rng(7), same(7), other(8);
  TraceIds ids(rng), again(same), different(other);
  EXPECT_EQ(ids.NewTrace(), again.NewTrace());
  EXPECT_NE(ids.NewSpan(), different.NewSpan());
  std::set<SpanId> seen;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_TRUE(seen.insert(ids.NewSpan()).second);
  }
  int sampled = 0;
  for (int i = 0; i < 10'000; ++i) {
    sampled += ids.Sample(250) ? 1 : 0;
    EXPECT_FALSE(ids.Sample(0));
    EXPECT_TRUE(ids.Sample(1'000));
  }
  EXPECT_NEAR(sampled, 2'500, 200);
}

}  // namespace
}  // namespace hpvm::server
