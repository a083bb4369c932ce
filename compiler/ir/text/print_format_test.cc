// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text/print_format.h"

#include <bit>
#include <cstdio>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/limits.h"

namespace hpvm::ir {
namespace {

constexpr Type kI32 = Type::kI32;
constexpr Type kI64 = Type::kI64;
constexpr Type kF64 = Type::kF64;

std::string Formatted(std::string_view format, bool is_memory64, std::vector<uint64_t> values) {
  const StatusOr<PrintFormat> parsed = ParsePrintFormat(format, is_memory64);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? FormatPrint(parsed->text, values) : "";
}

// Operand types follow C's types for the target; the normal form is the same for both targets.
TEST(PrintFormatTest, KnowsTheOperands) {
  const struct {
    std::string_view format;
    bool is_memory64;
    std::string_view text;
    std::vector<Type> operands;
  } cases[] = {
      {"plain\n", false, "plain\n", {}},
      {"100%%", false, "100%%", {}},
      {"%d %u", false, "%d %u", {kI32, kI32}},
      {"%ld %zu %td", false, "%d %u %d", {kI32, kI32, kI32}},
      {"%ld %zu %td", true, "%lld %llu %lld", {kI64, kI64, kI64}},
      {"%lld %jd", false, "%lld %lld", {kI64, kI64}},
      {"%hhd %hx", true, "%hhd %hx", {kI32, kI32}},
      {"%f %lf %-+8.3e", true, "%f %f %-+8.3e", {kF64, kF64, kF64}},
      {"%p %s %c", false, "%p %s %c", {kI32, kI32, kI32}},
      {"%p %s %c", true, "%p %s %c", {kI64, kI64, kI32}},
      {"%--5d", false, "%-5d", {kI32}},
      {"%+u %#d % s", false, "%u %d %s", {kI32, kI32, kI32}},
      {"%.d", false, "%.0d", {kI32}},
  };
  for (const auto& item : cases) {
    const StatusOr<PrintFormat> parsed = ParsePrintFormat(item.format, item.is_memory64);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->text, item.text);
    EXPECT_EQ(parsed->operands, item.operands) << item.format;
  }
}

// Each refusal contains its offset.
TEST(PrintFormatTest, RefusesTheRest) {
  const struct {
    std::string format, message;
  } cases[] = {
      {"ab%n", "at its byte 2, has the conversion \"n\""},
      {"%", "at its byte 0, ends inside a directive"},
      {"x%-08.", "at its byte 1, ends inside a directive"},
      {"%*d", "at its byte 1, has \"*\""},
      {"%.*f", "at its byte 2, has \"*\""},
      {"%256d", "above the limit (255)"},
      {"%99999999999999999999d", "above the limit (255)"},
      {"%.256f", "above the limit (255)"},
      {"%Lf", "has the conversion \"L\""},
      {"%hf", "has the length \"h\" before \"f\""},
      {"%lc", "has the length \"l\" before \"c\""},
      {"%lls", "has the length \"ll\" before \"s\""},
      {std::string("%\0d", 3), "has the conversion \"\\0\""},
      {"%\xff", "has the conversion \"\\255\""},
      {std::string(1001, 'a'), "longer (1001 bytes) than the limit (1000)"},
  };
  for (const auto& [format, message] : cases) {
    const StatusOr<PrintFormat> parsed = ParsePrintFormat(format, false);
    ASSERT_FALSE(parsed.ok()) << format;
    EXPECT_THAT(std::string(parsed.status().message()), testing::HasSubstr(message));
  }
  std::string many;
  for (uint32_t i = 0; i <= limits::kPrintOperandsMax; ++i) {
    many += "%d";
  }
  EXPECT_THAT(std::string(ParsePrintFormat(many, false).status().message()),
              testing::HasSubstr("takes more values (65)"));
}

// Values print as in C.
TEST(PrintFormatTest, PrintsNumbers) {
  const auto f64 = [](double value) { return std::bit_cast<uint64_t>(value); };
  const uint64_t minus_one = 0xffffffffu;
  EXPECT_EQ(Formatted("%d %u %x", false, {minus_one, minus_one, minus_one}), "-1 4294967295 ffffffff");
  EXPECT_EQ(Formatted("%ld %ld", true, {~0ull, 1ull << 40}), "-1 1099511627776");
  EXPECT_EQ(Formatted("%lld", false, {~1ull}), "-2");
  EXPECT_EQ(Formatted("%hhd %hhu %hd %hx", false, {0x180, 0x1ff, 0x18000, 0x12345}), "-128 255 -32768 2345");
  EXPECT_EQ(Formatted("[%5d|%-5d|%05d|%+d|% d]", false, {7, 7, 7, 7, 7}), "[    7|7    |00007|+7| 7]");
  EXPECT_EQ(Formatted("%#x %#o %X", false, {255, 8, 255}), "0xff 010 FF");
  EXPECT_EQ(Formatted("%.2f %e %g %a", false, {f64(1.005), f64(12345.678), f64(1e-7), f64(1)}),
            "1.00 1.234568e+04 1e-07 0x1p+0");
  EXPECT_EQ(Formatted("%f %F", false, {0x7ff0000000000000, 0x7ff8000000000000}), "inf NAN");
  EXPECT_EQ(Formatted("%p %c%3c|", false, {0x10, 'a', 'b'}), "0x10 a  b|");
  EXPECT_EQ(Formatted("%d%%", false, {50}), "50%");
  EXPECT_EQ(Formatted("%.255f", false, {f64(-1.7976931348623157e308)}).size(), 1u + 309 + 1 + 255);
}

// %s prints only strings in the module's initial memory.
TEST(PrintFormatTest, PrintsLiterals) {
  const std::vector<uint8_t> bytes = {'o', 'n', 'e', 0, 't', 'w', 'o', 0, 'x'};
  const std::vector<DataSegment> memory = {{100, bytes}, {200, {'y', 0}}};
  const auto text = [&](std::string_view format, uint64_t address) {
    return FormatPrint(format, std::vector<uint64_t>{address}, memory);
  };
  EXPECT_EQ(text("%s", 100), "one");
  EXPECT_EQ(text("%s", 101), "ne");
  EXPECT_EQ(text("%s", 103), "");
  EXPECT_EQ(text("<%6s>", 104), "<   two>");
  EXPECT_EQ(text("<%-6.2s>", 104), "<tw    >");
  EXPECT_EQ(text("%s", 108), "x");  // Memory after the segment is zero.
  EXPECT_EQ(text("%s", 200), "y");
  for (const uint64_t address : {uint64_t{0}, uint64_t{99}, uint64_t{109}, uint64_t{202}, ~uint64_t{0}}) {
    EXPECT_THAT(text("%s", address), testing::HasSubstr("(no literal at 0x"));
  }
  EXPECT_EQ(FormatPrint("%s", std::vector<uint64_t>{100}), "(no literal at 0x64)");
  const std::vector<DataSegment> large = {{0, std::vector<uint8_t>(2000, 'a')}};
  EXPECT_EQ(FindLiteral(large, 0, 1000), std::nullopt);
  EXPECT_EQ(FindLiteral(large, 1000, 1000), std::string(1000, 'a'));
  EXPECT_EQ(FindLiteral(large, 999, 1000), std::nullopt);
  const std::vector<DataSegment> adjacent = {{10, {'a', 'b'}}, {12, {'c', 0}}};
  EXPECT_EQ(FindLiteral(adjacent, 10, 1000), std::nullopt);
  EXPECT_EQ(FindLiteral(adjacent, 12, 1000), "c");
}

// Formatting accepts any format: it copies directives that it cannot format.
TEST(PrintFormatTest, IsTotal) {
  EXPECT_EQ(FormatPrint("%d %d", std::vector<uint64_t>{1}), "1 %d");
  EXPECT_EQ(FormatPrint("%n%*d%", std::vector<uint64_t>{1, 2}), "%n%*d%");
  std::mt19937 random(3);
  constexpr std::string_view kLetters = "%%%%%dfsxcpng-+ #0.*123456789lhjzt\n\0\xff";
  for (int i = 0; i < 20'000; ++i) {
    std::string format(random() % 40, ' ');
    for (char& c : format) {
      c = kLetters[random() % kLetters.size()];
    }
    std::vector<uint64_t> values(random() % 4);
    for (uint64_t& value : values) {
      value = uint64_t{random()} << (random() % 33) | random();
    }
    // A field is at most 255 wide, with 255 digits after the point of a number of 309 digits.
    EXPECT_LE(FormatPrint(format, values).size(), format.size() + values.size() * 600);
    const StatusOr<PrintFormat> parsed = ParsePrintFormat(format, (i & 1) != 0);
    if (parsed.ok()) {
      const StatusOr<PrintFormat> again = ParsePrintFormat(parsed->text, false);
      ASSERT_TRUE(again.ok()) << parsed->text;
      EXPECT_EQ(again->text, parsed->text) << "The normal form is not its own.";
    }
  }
}

}  // namespace
}  // namespace hpvm::ir
