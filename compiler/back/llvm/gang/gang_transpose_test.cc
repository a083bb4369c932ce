// SPDX-License-Identifier: Apache-2.0
// Compares accesses that are contiguous along y only, in tiles of several rows, with the interpreter.
#include <gtest/gtest.h>

#include "compiler/back/llvm/testing/gang_compare.h"

namespace hpvm::cpu {
namespace {

using testing::GangCompared;
using testing::WordsOf;

struct Case {
  const char* name;
  const char* type;    // Type of the elements.
  const char* add;     // The operation that changes the elements.
  const char* suffix;  // Width of loads and stores.
  uint32_t bytes;
};

constexpr Case kCases[] = {
    {"f64", "f64", "fadd.f64", "", 8},
    {"f32", "f32", "fadd.f32", "", 4},
    {"i32", "i32", "add.i32", "", 4},
    {"i64_of_4_bytes", "i64", "add.i64", "w4 signed ", 4},
};

class GangTransposeTest : public ::testing::TestWithParam<Case> {};

// Computes b[y][x] += a[x][y], then a[x][y] += 1, which touches each element of both once.
TEST_P(GangTransposeTest, AgreesWithInterpreter) {
  const Case& c = GetParam();
  const std::string type = c.type, shift = c.bytes == 8 ? "%three" : "%two", suffix = c.suffix;
  const std::string text =
      "module \"t\"\nparam buffer inout \"a\"\nparam buffer inout \"b\"\nparam i32 \"n\"\n"
      "param i32 \"m\"\nentry f0\n"
      "func f0 \"t\" (%a: i32, %b: i32, %n: i32, %m: i32) -> () {\n"
      " %zero: i32 = const.i32 0\n %one: i32 = const.i32 1\n %two: i32 = const.i32 2\n"
      " %three: i32 = const.i32 3\n %x: i32 = instance_id.i32 %zero\n"
      " %y: i32 = instance_id.i32 %one\n %r: i32 = mul.i32 %x, %m\n %i: i32 = add.i32 %r, %y\n"
      " %o: i32 = shl.i32 %i, " +
      shift +
      "\n %p: i32 = add.i32 %a, %o\n"
      " %s: i32 = mul.i32 %y, %n\n %j: i32 = add.i32 %s, %x\n %q: i32 = shl.i32 %j, " +
      shift +
      "\n %t: i32 = add.i32 %b, %q\n"
      " %v: " +
      type + " = load." + type + " " + suffix +
      "flat %p\n"
      " %w: " +
      type + " = load." + type + " " + suffix +
      "flat %t\n"
      " %u: " +
      type + " = " + c.add + " %v, %w\n store." + type + " " + (suffix.empty() ? "" : "w4 ") +
      "flat %t, %u\n"
      " %k: " +
      type + " = const." + type + " 0x3\n %l: " + type + " = " + c.add +
      " %v, %k\n"
      " store." +
      type + " " + (suffix.empty() ? "" : "w4 ") + "flat %p, %l\n return ()\n}\n";
  GangCompared kernel(text, false, {{4, 1, 4}, {8, 2, 8}, {16, 1, 6}, {4, 2, 16}, {16, 1, 5}});
  for (const auto& [x, y] : std::vector<std::pair<uint64_t, uint64_t>>{{16, 16}, {17, 6}, {35, 37}, {3, 2}}) {
    const size_t words = x * y * c.bytes / 4;
    kernel.Check({{WordsOf(words, [](size_t i) { return 0x3f800000 + i * 977; }),
                   WordsOf(words, [](size_t i) { return 0x40000000 + i * 55441; })},
                  {0, 0, x, y},
                  {x, y, 1}});
  }
  EXPECT_GT(kernel.unchecked_runs, 0u);
  for (const auto& image : kernel.images()) {
    EXPECT_GE(image->artifact().variants.size(), 5u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GangTransposeTest, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace hpvm::cpu
