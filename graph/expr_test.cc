// SPDX-License-Identifier: Apache-2.0
#include "graph/expr.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/clock.h"
#include "graph/flatten.h"

namespace hpvm::graph {
namespace {

// Letters are symbols: a, b, c ...
ExprOutcome Read(std::string_view text) {
  return ParseExpr(text, [](std::string_view name) { return SymbolId(static_cast<uint32_t>(name[0] - 'a')); });
}

Expr Good(std::string_view text) {
  ExprOutcome outcome = Read(text);
  EXPECT_TRUE(outcome.expr.has_value()) << text << " " << outcome.fault;
  return outcome.expr.value_or(Expr());
}

// Tests precedence, association and floored division; a = 7, b = -3, c = 0.
TEST(ExprTest, Evaluates) {
  const std::pair<const char*, int64_t> cases[] = {{"a", 7},
                                                   {"42", 42},
                                                   {"1+2*3", 7},
                                                   {"(1+2)*3", 9},
                                                   {"10-4-3", 3},
                                                   {"100/10/5", 2},
                                                   {"2*7%4", 2},
                                                   {"a - -b", 4},
                                                   {"--a", 7},
                                                   {"-a*b", 21},
                                                   {"-7/2", -4},
                                                   {"7/-2", -4},
                                                   {"-7 % 2", 1},
                                                   {"7 % -2", -1},
                                                   {"-8/2", -4},
                                                   {"b/a", -1},
                                                   {"b%a", 4},
                                                   {"a % -1", 0},
                                                   {"min(a, b)", -3},
                                                   {"max(a, b, 9, 1)", 9},
                                                   {"min(a,max(b,c))+1", 1},
                                                   {"max((a), -(b))", 7},
                                                   {" ( a+15 ) / 16 ", 1},
                                                   {"(c+15)/16", 0},
                                                   {"08", 8},
                                                   {"9223372036854775807", INT64_MAX},
                                                   {"-9223372036854775807 - 1", INT64_MIN}};
  for (const auto& [text, want] : cases) {
    const StatusOr<int64_t> got = Evaluate(Good(text), {7, -3, 0});
    ASSERT_TRUE(got.ok()) << text;
    EXPECT_EQ(*got, want) << text;
  }
}

ExprOutcome ReadReal(std::string_view text) {
  return ParseExpr(
      text, [](std::string_view name) { return SymbolId(static_cast<uint32_t>(name[0] - 'a')); }, ExprNumbers::kReals);
}

// Reals divide as reals, accept fractions and exponents, and floor only in `%`; a = 7, b = -3, c = 0.
TEST(ExprTest, EvaluatesReals) {
  const std::pair<const char*, double> cases[] = {{"1/a", 1.0 / 7},
                                                  {"a/2", 3.5},
                                                  {"b/2", -1.5},
                                                  {"0.5", 0.5},
                                                  {".25*a", 1.75},
                                                  {"1e-3", 1e-3},
                                                  {"2.5E+2", 250.0},
                                                  {"-a", -7},
                                                  {"min(a, 0.5)", 0.5},
                                                  {"max(b, -0.25, c)", 0},
                                                  {"-7 % 2", 1},
                                                  {"7 % -2", -1},
                                                  {"7.5 % 2", 1.5},
                                                  {"-7.5 % 2", 0.5},
                                                  {"(a+b)/(a-b)", 0.4},
                                                  {"a", 7},
                                                  {"1/3*3", 1.0},
                                                  {"1e300*1e8", 1e308},
                                                  {"4611686018427387904*4", 0x1p64}};
  for (const auto& [text, want] : cases) {
    const ExprOutcome outcome = ReadReal(text);
    ASSERT_TRUE(outcome.expr.has_value()) << text << " " << outcome.fault;
    const StatusOr<double> got = EvaluateReal(*outcome.expr, {7, -3, 0});
    ASSERT_TRUE(got.ok()) << text;
    EXPECT_EQ(*got, want) << text;
  }
  for (const auto& [text, want] : {std::pair("1e999", "has a number at character 0 that does not fit a 64-bit float"),
                                   std::pair("a/0", "divides by zero"), std::pair("a/0.0", "divides by zero"),
                                   std::pair("1e308*10", "has no value: it is not finite or divides by zero"),
                                   std::pair("1.5f", "has \"f\" at character 3 where an operator is expected"),
                                   std::pair("1.5.2", "has \".\" at character 3 where an operator is expected")}) {
    EXPECT_EQ(ReadReal(text).fault, want) << text;
  }
  EXPECT_EQ(Message(EvaluateReal(*ReadReal("a/c").expr, {7, -3, 0}).status()), "Expression \"a/c\" divides by zero.");
  EXPECT_EQ(Message(EvaluateReal(*ReadReal("1e308*a").expr, {7}).status()), "Expression \"1e308*a\" is not finite.");
}

// Faults of malformed text name the position.
TEST(ExprTest, RefusesBadText) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "is empty"},
      {"   ", "ends where a number, a symbol or \"(\" is expected"},
      {"a +", "ends where a number, a symbol or \"(\" is expected"},
      {"a b", "has \"b\" at character 2 where an operator is expected"},
      {"1.5", "has \".\" at character 1 where an operator is expected"},
      {"2n", "has \"n\" at character 1 where an operator is expected"},
      {"*a", "has \"*\" at character 0 where a number, a symbol or \"(\" is expected"},
      {"(a", "has a \"(\" that is not closed"},
      {"a)", "has a \")\" at character 1 that is out of place"},
      {"(a,b)", "has a \",\" at character 2 that is out of place"},
      {"min", "has \"min\" at character 0 without \"(\" after it"},
      {"min()", "has \")\" at character 4 where a number, a symbol or \"(\" is expected"},
      {"max(a)", "calls \"max\" with one argument; two or more are needed"},
      {"a/0", "divides by zero"},
      {"a%(0)", "divides by zero"},
      {"9223372036854775808", "has a number outside 64 bits at character 0"},
      {"1/(2-2)", "has no value: it overflows 64 bits or divides by zero"},
      {"4611686018427387904*2", "has no value: it overflows 64 bits or divides by zero"},
      {std::string(1025, 'a'), "has 1025 bytes; the limit is 1024"},
      {std::string(256, 'a') + "+1", "has a symbol of 256 characters; the limit is 255"},
  };
  for (const auto& [text, want] : cases) {
    const ExprOutcome outcome = Read(text);
    EXPECT_FALSE(outcome.expr.has_value()) << text;
    EXPECT_EQ(outcome.fault, want) << text;
  }
  std::string deep;
  for (int i = 0; i < 70; ++i) {
    deep += "a+(";
  }
  EXPECT_EQ(Read(deep + "a" + std::string(70, ')')).fault, "needs more than 64 intermediate values");
}

// Overflow and zero divisors name the expression; nothing wraps or traps.
TEST(ExprTest, EvaluationFails) {
  const std::pair<const char*, const char*> cases[] = {
      {"a+1", "Expression \"a+1\" overflows 64 bits."},   {"a*2", "Expression \"a*2\" overflows 64 bits."},
      {"b-1", "Expression \"b-1\" overflows 64 bits."},   {"-b", "Expression \"-b\" overflows 64 bits."},
      {"b/-1", "Expression \"b/-1\" overflows 64 bits."}, {"a/c", "Expression \"a/c\" divides by zero."},
      {"a%c", "Expression \"a%c\" divides by zero."},     {"d", "Expression \"d\" has a symbol without a value."}};
  for (const auto& [text, want] : cases) {
    const StatusOr<int64_t> got = Evaluate(Good(text), {INT64_MAX, INT64_MIN, 0});
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_EQ(Message(got.status()), want);
  }
}

// Equal polynomials compare equal in any form; a constant between two makes them different; the rest is unknown.
TEST(ExprTest, Compares) {
  using enum Sameness;
  struct Case {
    const char* a;
    const char* b;
    Sameness want;
  };
  const Case cases[] = {{"a*b", "b*a", kEqual},
                        {"(a+b)*(a-b)", "a*a - b*b", kEqual},
                        {"2*a - a", "a", kEqual},
                        {"a", "a+1", kDifferent},
                        {"3", "4", kDifferent},
                        {"a", "b", kUnknown},
                        {"a*2", "a", kUnknown},
                        {"(a+15)/16", "(15+a)/(4*4)", kEqual},
                        {"(a+15)/16", "(a+15)/16 + 1", kDifferent},
                        {"(a+15)/16", "(a+14)/16", kUnknown},
                        {"min(a, b)", "min(b, a)", kEqual},
                        {"min(a, b)", "max(a, b)", kUnknown},
                        {"a/b", "b/a", kUnknown},
                        {"a - a", "0", kEqual},
                        {"a*9223372036854775807*2", "a", kUnknown}};
  for (const Case& test : cases) {
    uint64_t budget = 10'000;
    EXPECT_EQ(Compare(Good(test.a), Good(test.b), budget), test.want) << test.a << " and " << test.b;
    EXPECT_EQ(Compare(Good(test.b), Good(test.a), budget), test.want) << test.b << " and " << test.a;
  }
}

// Without budget, only equal texts compare equal.
TEST(ExprTest, ComparingStopsWithItsBudget) {
  uint64_t budget = 3;
  EXPECT_EQ(Compare(Good("(a+b)*(a+b)"), Good("a*a + 2*a*b + b*b"), budget), Sameness::kUnknown);
  EXPECT_EQ(Compare(Good("a*b"), Good("a*b"), budget), Sameness::kEqual);
}

// Compare never contradicts the values of random expressions.
TEST(ExprTest, ComparingAgreesWithValues) {
  SeededRng rng(7);
  const std::function<std::string(int)> make = [&](int depth) -> std::string {
    switch (depth == 0 ? rng.Below(2) : rng.Below(7)) {
      case 0:
        return std::string(1, static_cast<char>('a' + rng.Below(3)));
      case 1:
        return std::to_string(rng.Below(4) + 1);
      case 2:
        return "(" + make(depth - 1) + "+" + make(depth - 1) + ")";
      case 3:
        return "(" + make(depth - 1) + "-" + make(depth - 1) + ")";
      case 4:
        return "(" + make(depth - 1) + "*" + make(depth - 1) + ")";
      case 5:
        return "min(" + make(depth - 1) + "," + make(depth - 1) + ")";
      default:
        return "(" + make(depth - 1) + "/" + std::to_string(rng.Below(3) + 1) + ")";
    }
  };
  std::map<Sameness, int> seen;
  for (int round = 0; round < 20'000; ++round) {
    const std::string a = make(2);
    const std::string b = make(2);
    uint64_t budget = 100'000;
    const Sameness sameness = Compare(Good(a), Good(b), budget);
    ++seen[sameness];
    const SymbolValues values = {static_cast<int64_t>(rng.Below(50)), static_cast<int64_t>(rng.Below(50)),
                                 static_cast<int64_t>(rng.Below(50))};
    const StatusOr<int64_t> left = Evaluate(Good(a), values);
    const StatusOr<int64_t> right = Evaluate(Good(b), values);
    ASSERT_TRUE(left.ok() && right.ok()) << a << " " << b;
    if (sameness != Sameness::kUnknown) {
      ASSERT_EQ(*left == *right, sameness == Sameness::kEqual) << a << " and " << b;
    }
  }
  EXPECT_GT(seen[Sameness::kEqual], 100);
  EXPECT_GT(seen[Sameness::kDifferent], 100);
}

}  // namespace
}  // namespace hpvm::graph
