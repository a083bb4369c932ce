// SPDX-License-Identifier: Apache-2.0
// Compares indices that are clamped, mirrored, periodic or computed from a linear index with the interpreter. Tiles
// have every shape and level, and meet an edge in their first, last or a middle lane or not at all.
#include <gtest/gtest.h>

#include "compiler/back/llvm/testing/gang_compare.h"

namespace hpvm::cpu {
namespace {

using testing::GangCompared;
using testing::KernelText;
using testing::WordsOf;

// The body computes %i, which is stored, and whose low bits index x.
std::string Indexed(const std::string& body) {
  return KernelText(body + R"(
  %low: i32 = and.i32 %i, %seven
  %off: i32 = shl.i32 %low, %two
  %p: i32 = add.i32 %x, %off
  %w: i32 = load.i32 flat %p
  %s: i32 = mul.i32 %i, %three
  %t: i32 = add.i32 %s, %w
  store.i32 flat %ra, %t
  return ()
)");
}

struct Case {
  const char* name;
  const char* body;
};

constexpr Case kCases[] = {
    {"clamped_below", R"(
  %j: i32 = sub.i32 %id, %three
  %c: i32 = gt_s.i32 %j, %zero
  %i: i32 = select.i32 %c, %j, %zero
)"},
    {"clamped_above", R"(
  %j: i32 = add.i32 %id, %three
  %last: i32 = sub.i32 %n, %one
  %c: i32 = lt_s.i32 %j, %last
  %i: i32 = select.i32 %c, %j, %last
)"},
    {"clamped_twice", R"(
  %j: i32 = sub.i32 %id, %one
  %last: i32 = sub.i32 %n, %one
  %c: i32 = lt_s.i32 %j, %last
  %k: i32 = select.i32 %c, %j, %last
  %d: i32 = lt_s.i32 %j, %zero
  %i: i32 = select.i32 %d, %zero, %k
)"},
    {"mirrored", R"(
  %j: i32 = sub.i32 %id, %four
  %m: i32 = sub.i32 %zero, %j
  %c: i32 = lt_s.i32 %j, %zero
  %i: i32 = select.i32 %c, %m, %j
)"},
    {"chosen_by_id", R"(
  %j: i32 = sub.i32 %id, %one
  %last: i32 = sub.i32 %n, %one
  %i: i32 = select.i32 %id, %j, %last
)"},
    {"next_or_first", R"(
  %j: i32 = add.i32 %id, %one
  %c: i32 = eq.i32 %j, %n
  %i: i32 = select.i32 %c, %zero, %j
)"},
    {"next_or_own", R"(
  %j: i32 = add.i32 %id, %one
  %c: i32 = eq.i32 %j, %n
  %i: i32 = select.i32 %c, %id, %j
)"},
    {"backwards", R"(
  %j: i32 = sub.i32 %n, %id
  %c: i32 = gt_s.i32 %j, %zero
  %i: i32 = select.i32 %c, %j, %zero
)"},
    {"remainder", "%i: i32 = rem_u.i32 %id, %n\n"},
    {"remainder_signed", "%i: i32 = rem_s.i32 %id, %n\n"},
    {"remainder_below_zero", R"(
  %j: i32 = sub.i32 %id, %seven
  %i: i32 = rem_s.i32 %j, %n
)"},
    {"remainder_around_the_range", R"(
  %j: i32 = sub.i32 %id, %seven
  %i: i32 = rem_u.i32 %j, %n
)"},
    {"remainder_backwards", R"(
  %d: i32 = const.i32 100
  %j: i32 = sub.i32 %d, %id
  %i: i32 = rem_s.i32 %j, %n
)"},
    {"previous_periodic", R"(
  %j: i32 = add.i32 %id, %n
  %k: i32 = sub.i32 %j, %one
  %i: i32 = rem_s.i32 %k, %n
)"},
    {"coordinates", R"(
  %y: i32 = div_u.i32 %id, %n
  %c: i32 = rem_u.i32 %id, %n
  %e: i32 = shl.i32 %y, %seven
  %i: i32 = add.i32 %e, %c
)"},
    {"coordinates_signed", R"(
  %j: i32 = sub.i32 %id, %four
  %y: i32 = div_s.i32 %j, %n
  %c: i32 = rem_s.i32 %j, %n
  %e: i32 = shl.i32 %y, %seven
  %i: i32 = add.i32 %e, %c
)"},
    {"constant_divisor", R"(
  %d: i32 = const.i32 100
  %y: i32 = div_u.i32 %id, %d
  %c: i32 = rem_s.i32 %id, %d
  %e: i32 = shl.i32 %y, %seven
  %i: i32 = add.i32 %e, %c
)"},
    {"negative_divisor", R"(
  %d: i32 = const.i32 -100
  %y: i32 = div_s.i32 %id, %d
  %c: i32 = rem_s.i32 %id, %d
  %e: i32 = shl.i32 %y, %seven
  %i: i32 = add.i32 %e, %c
)"},
    {"bits", R"(
  %mask: i32 = const.i32 63
  %six: i32 = const.i32 6
  %j: i32 = sub.i32 %id, %seven
  %a: i32 = and.i32 %j, %mask
  %b: i32 = shr_s.i32 %j, %six
  %d: i32 = shr_u.i32 %j, %six
  %e: i32 = mul.i32 %b, %three
  %f: i32 = add.i32 %a, %e
  %i: i32 = xor.i32 %d, %f
)"},
    {"wide", R"(
  %j: i64 = extend_u.i32 %id
  %m: i64 = extend_s.i32 %n
  %big: i64 = const.i64 0x7ffffffffffffff0
  %far: i64 = add.i64 %j, %big
  %a: i64 = rem_u.i64 %j, %m
  %b: i64 = div_s.i64 %far, %m
  %d: i64 = rem_u.i64 %far, %m
  %e: i64 = add.i64 %a, %b
  %f: i64 = xor.i64 %d, %e
  %i: i32 = wrap.i64 %f
)"},
    {"divisor_close_to_the_range", R"(
  %least: i32 = const.i32 0x80000000
  %d: i32 = sub.i32 %least, %n
  %far: i32 = sub.i32 %least, %four
  %j: i32 = add.i32 %far, %id
  %a: i32 = rem_u.i32 %j, %d
  %b: i32 = rem_s.i32 %j, %d
  %i: i32 = sub.i32 %a, %b
)"},
    // The clamp is in a loop that all lanes run.
    {"in_loop", R"(
  %last: i32 = sub.i32 %n, %one
  %i: i32 = loop b0 (%k: i32 = %zero, %sum: i32 = %zero) {
    %j: i32 = add.i32 %id, %k
    %c: i32 = lt_s.i32 %j, %last
    %q: i32 = select.i32 %c, %j, %last
    %next: i32 = add.i32 %sum, %q
    %l: i32 = add.i32 %k, %one
    %more: i32 = lt_u.i32 %l, %seven
    if b1 %more {
      continue b0 (%l, %next)
    } else {
      br b0 (%next)
    }
    br b0 (%next)
  }
)"},
};

class GangAssumedTest : public ::testing::TestWithParam<Case> {};

TEST_P(GangAssumedTest, Agrees) {
  GangCompared kernel(Indexed(GetParam().body));
  for (const uint64_t n : {uint64_t{1}, uint64_t{5}, uint64_t{16}, uint64_t{33}, uint64_t{64}, uint64_t{100},
                           uint64_t{0x7fffffff}, uint64_t{0x80000000}, uint64_t{0xffffffff}}) {
    for (const uint64_t extent : {1, 8, 15, 16, 33, 50, 130}) {
      kernel.Check({{WordsOf(extent, [](size_t i) { return i * 77; }),
                     WordsOf(std::max<size_t>(extent, 8), [](size_t i) { return i * 2654435761u >> 5; }),
                     {}},
                    {0, 0, n},
                    {extent, 1, 1}});
      if (HasFatalFailure() || HasNonfatalFailure()) {
        ADD_FAILURE() << "n " << n;
        return;
      }
    }
  }
  EXPECT_GT(kernel.unchecked_runs, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, GangAssumedTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// A divisor of zero traps, in each shape, as it does for a single instance.
TEST(GangAssumedTest, DivisionByZeroTraps) {
  GangCompared kernel(Indexed("%i: i32 = rem_u.i32 %id, %n\n"));
  const auto words = WordsOf(40, [](size_t i) { return i; });
  EXPECT_EQ(kernel.Check({{words, words, {}}, {0, 0, 0}, {40, 1, 1}}).code, ir::TrapCode::kDivideByZero);
}

// Rows of a tile meet the edge at different lanes; each row tests for itself.
TEST(GangAssumedTest, EdgesThatMoveWithTheRow) {
  GangCompared kernel(KernelText(R"(
  %y: i32 = instance_id.i32 %one
  %width: i32 = const.i32 50
  %sum: i32 = add.i32 %id, %y
  %c: i32 = lt_s.i32 %sum, %n
  %i: i32 = select.i32 %c, %sum, %n
  %k: i32 = rem_u.i32 %sum, %n
  %s: i32 = mul.i32 %i, %seven
  %t: i32 = add.i32 %s, %k
  %row: i32 = mul.i32 %y, %width
  %place: i32 = add.i32 %row, %id
  %off: i32 = shl.i32 %place, %two
  %p: i32 = add.i32 %r, %off
  store.i32 flat %p, %t
  return ()
)"));
  for (const uint64_t n : {1, 20, 37, 49, 60, 1000}) {
    kernel.Check({{WordsOf(50 * 20, [](size_t i) { return i; }), WordsOf(50, [](size_t i) { return i; }), {}},
                  {0, 0, n},
                  {50, 20, 1}});
  }
  EXPECT_GT(kernel.unchecked_runs, 0u);
}

}  // namespace
}  // namespace hpvm::cpu
