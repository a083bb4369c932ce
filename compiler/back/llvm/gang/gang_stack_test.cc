// SPDX-License-Identifier: Apache-2.0
// Compares values that instances keep on their stacks, in tiles of every shape and level, with the interpreter.
#include <gtest/gtest.h>

#include "compiler/back/llvm/testing/gang_compare.h"

namespace hpvm::cpu {
namespace {

using ir::TrapCode;
using testing::GangCompared;
using testing::KernelText;
using testing::WordsOf;

// Returns a kernel with 64 bytes from %fp on, reserved as compilers do; %index is %v modulo 8, %p the address of word
// %index.
std::string OnStack(const std::string& body, const std::string& size = "64") {
  return KernelText(R"(
  %sp: i32 = global_get.i32 g0
  %size: i32 = const.i32 )" +
                        size + R"(
  %fp: i32 = sub.i32 %sp, %size
  global_set.i32 g0 %fp
  %index: i32 = and.i32 %v, %seven
  %word: i32 = shl.i32 %index, %two
  %p: i32 = add.i32 %fp, %word
)" + body + R"(
  global_set.i32 g0 %sp
  return ()
)",
                    "", "memory 65536 65536\nglobal mut i32 0x8000\nstack_pointer g0\n");
}

// Returns a kernel whose frame at [0x7fc0, 0x8000) is declared in the module.
std::string InFrame(const std::string& body) {
  return KernelText("%fp: i32 = const.i32 0x7fc0\n" + body + "\nreturn ()\n", "",
                    "memory 65536 65536\nstack_frame 0x7fc0 0x8000 4\n");
}

struct Case {
  const char* name;
  const char* body;
};

constexpr Case kCases[] = {
    {"one_place", R"(
  store.i32 flat %fp + 8, %v
  %w: i32 = load.i32 flat %fp + 8
  %z: i32 = load.i32 flat %fp + 4
  %s: i32 = add.i32 %w, %z
  store.i32 flat %ra, %s
)"},
    {"place_by_lane", R"(
  store.i32 flat %p, %id
  store.i32 flat %fp, %v
  %w: i32 = load.i32 flat %p
  store.i32 flat %ra, %w
)"},
    {"place_by_id", R"(
  %i: i32 = and.i32 %id, %seven
  %off: i32 = shl.i32 %i, %two
  %q: i32 = add.i32 %fp, %off
  store.i32 flat %q, %v
  %w: i32 = load.i32 flat %p
  %s: i32 = add.i32 %w, %id
  store.i32 flat %ra, %s
)"},
    {"place_of_all", R"(
  %i: i32 = and.i32 %n, %seven
  %off: i32 = shl.i32 %i, %two
  %q: i32 = add.i32 %fp, %off
  store.i32 flat %q + 4, %v
  %w: i32 = load.i32 flat %q + 4
  %u: i32 = load.i32 flat %p + 4
  %s: i32 = xor.i32 %w, %u
  store.i32 flat %ra, %s
)"},
    {"bytes", R"(
  %q: i32 = add.i32 %fp, %index
  store.i32 flat %fp, %v
  store.i32 flat %fp + 4, %id
  store.i32 w1 flat %q + 1, %seven
  store.i32 w1 flat %fp + 3, %v
  %b: i32 = load.i32 w1 signed flat %q
  %c: i32 = load.i32 w1 flat %fp + 7
  %w: i32 = load.i32 flat %fp
  %s: i32 = add.i32 %b, %c
  %t: i32 = mul.i32 %s, %w
  store.i32 flat %ra, %t
)"},
    {"halves", R"(
  %off: i32 = shl.i32 %index, %one
  %q: i32 = add.i32 %fp, %off
  store.i32 flat %fp + 4, %v
  store.i32 w2 flat %q + 2, %id
  store.i64 w2 flat %fp + 8, %wide
  %h: i32 = load.i32 w2 signed flat %q
  %w: i64 = load.i64 w2 signed flat %fp + 8
  %n2: i32 = wrap.i64 %w
  %s: i32 = mul.i32 %h, %n2
  store.i32 flat %ra, %s
)"},
    {"eights_among_fours", R"(
  %off: i32 = shl.i32 %index, %two
  store.i64 flat %p + 4, %wide
  %w: i32 = load.i32 flat %p + 8
  store.i32 flat %p, %v
  %d: i64 = load.i64 flat %p
  %e: i64 = load.i64 flat %fp + 12
  %f: i64 = add.i64 %d, %e
  %g: i32 = wrap.i64 %f
  %s: i32 = add.i32 %w, %g
  store.i32 flat %ra, %s
)"},
    {"eights_alone", R"(
  %off: i32 = shl.i32 %word, %one
  %q: i32 = add.i32 %fp, %word
  %even: i32 = const.i32 24
  %o: i32 = and.i32 %off, %even
  %r8: i32 = add.i32 %fp, %o
  %float: f64 = convert_s.i64 %wide
  store.f64 flat %r8, %float
  store.i64 flat %fp + 8, %wide
  %d: f64 = load.f64 flat %r8 + 8
  %e: i64 = trunc_sat_s.f64 %d
  %f: i64 = load.i64 flat %r8
  %g: i64 = add.i64 %e, %f
  %s: i32 = wrap.i64 %g
  store.i32 flat %ra, %s
)"},
    {"floats", R"(
  %f: f32 = convert_s.i32 %v
  store.f32 flat %p, %f
  store.f32 flat %fp + 12, %f
  %g: f32 = load.f32 flat %p + 4
  %h: f32 = load.f32 flat %fp + 12
  %s: f32 = fadd.f32 %g, %h
  store.f32 flat %ra, %s
)"},
    {"quads", R"(
  store128 flat %p + 4, %v, %id, %n, %seven
  %a: i32, %b: i32, %c: i32, %d: i32 = load128 flat %fp + 8
  %s: i32 = add.i32 %a, %b
  %t: i32 = xor.i32 %s, %c
  %u: i32 = add.i32 %t, %d
  store.i32 flat %ra, %u
)"},
    // Inactive lanes keep their values.
    {"masked", R"(
  store.i32 flat %fp + 4, %id
  store.i32 flat %p, %seven
  %c: i32 = and.i32 %v, %one
  if b0 %c {
    store.i32 flat %fp + 4, %v
    store.i32 flat %p, %v
    store.i32 w1 flat %fp + 4, %three
    br b0 ()
  } else {
    %k: i32 = load.i32 flat %p
    store.i32 flat %fp + 8, %k
    br b0 ()
  }
  %w: i32 = load.i32 flat %fp + 4
  %x2: i32 = load.i32 flat %p
  %y: i32 = load.i32 flat %fp + 8
  %s: i32 = add.i32 %w, %x2
  %t: i32 = mul.i32 %s, %three
  %u: i32 = add.i32 %t, %y
  store.i32 flat %ra, %u
)"},
    // Sums as many words as the lane's index says.
    {"loops", R"(
  %end: i32 = loop b0 (%i: i32 = %zero) {
    %off: i32 = shl.i32 %i, %two
    %q: i32 = add.i32 %fp, %off
    %k: i32 = mul.i32 %i, %v
    store.i32 flat %q, %k
    %j: i32 = add.i32 %i, %one
    %more: i32 = le_u.i32 %j, %seven
    if b1 %more {
      continue b0 (%j)
    } else {
      br b0 (%i)
    }
    br b0 (%i)
  }
  %sum: i32 = loop b2 (%i2: i32 = %index, %a: i32 = %end) {
    %off2: i32 = shl.i32 %i2, %two
    %q2: i32 = add.i32 %fp, %off2
    %k2: i32 = load.i32 flat %q2
    %b: i32 = add.i32 %a, %k2
    if b3 %i2 {
      %j2: i32 = sub.i32 %i2, %one
      continue b2 (%j2, %b)
    } else {
      br b2 (%b)
    }
    br b2 (%b)
  }
  store.i32 flat %ra, %sum
)"},
};

class GangStackTest : public ::testing::TestWithParam<Case> {};

TEST_P(GangStackTest, Agrees) {
  GangCompared kernel(OnStack("%wide: i64 = extend_s.i32 %v\n" + std::string(GetParam().body)));
  for (uint64_t extent : {1, 4, 5, 8, 15, 16, 17, 33, 50}) {
    kernel.Check({{WordsOf(extent, [](size_t i) { return i * 77; }),
                   WordsOf(extent, [](size_t i) { return i * 2654435761u >> 5; }),
                   {}},
                  {0, 0, 5},
                  {extent, 1, 1}});
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
  EXPECT_GT(kernel.unchecked_runs, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, GangStackTest, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Each row of a tile has its own stack.
TEST(GangStackRowsTest, Agree) {
  GangCompared kernel(KernelText(R"(
  %sp: i32 = global_get.i32 g0
  %size: i32 = const.i32 32
  %fp: i32 = sub.i32 %sp, %size
  global_set.i32 g0 %fp
  %y: i32 = instance_id.i32 %one
  %count: i32 = instance_count.i32 %zero
  %row: i32 = mul.i32 %y, %count
  %all: i32 = add.i32 %row, %id
  %off: i32 = shl.i32 %all, %two
  %ra2: i32 = add.i32 %r, %off
  store.i32 flat %fp + 4, %y
  store.i32 flat %fp + 8, %all
  %m: i32 = and.i32 %y, %one
  %j: i32 = shl.i32 %m, %two
  %q: i32 = add.i32 %fp, %j
  %w: i32 = load.i32 flat %q + 4
  %u: i32 = load.i32 flat %fp + 8
  %s: i32 = mul.i32 %w, %seven
  %t: i32 = add.i32 %s, %u
  store.i32 flat %ra2, %t
  return ()
)",
                                 "", "memory 65536 65536\nglobal mut i32 0x8000\nstack_pointer g0\n"),
                      /*is_refused=*/false, {{4, 2, 2}, {16, 1, 4}});
  for (const uint64_t rows : {1, 3, 4, 9}) {
    kernel.Check({{WordsOf(33 * rows, [](size_t) { return 0; }), WordsOf(33, [](size_t i) { return i; }), {}},
                  {},
                  {33, rows, 1}});
  }
}

// One instance's address lies outside the frame, below or above it, or wraps around.
TEST(GangStackTrapTest, OutsideOfTheFrame) {
  for (const char* access : {"store.i32 stack %p, %v", "%w: i32 = load.i32 stack %p", "store.i32 w1 stack %p + 3, %v",
                             "store128 stack %p + 16, %v, %v, %v, %v", "store128 stack %p, %v, %v, %v, %v",
                             "%w: i64 = load.i64 stack %p", "%w: i32 = load.i32 w2 signed stack %p + 2"}) {
    SCOPED_TRACE(access);
    GangCompared kernel(InFrame("%word: i32 = shl.i32 %v, %two\n%p: i32 = add.i32 %fp, %word\n" + std::string(access) +
                                " @9\nstore.i32 flat %ra, %id"));
    for (const uint32_t index : {3u, 13u, 15u, 16u, 0xffffffffu, 0x3fffffffu, 0x40000002u}) {
      for (const uint64_t extent : {1, 17, 40}) {
        kernel.Check({{WordsOf(extent, [](size_t i) { return i; }),
                       WordsOf(extent, [&](size_t i) { return i == extent / 2 ? index : 0; }),
                       {}},
                      {},
                      {extent, 1, 1}});
      }
    }
  }
}

TEST(GangStackTrapTest, OutsideForAll) {
  GangCompared kernel(
      InFrame("%word: i32 = shl.i32 %n, %two\n%p: i32 = add.i32 %fp, %word\nstore.i32 stack %p, %v @9\n"
              "store.i32 flat %ra, %id"));
  for (const uint64_t index : {0u, 15u, 16u, 0xffffffffu}) {
    const ir::TrapReport trap =
        kernel.Check({{WordsOf(20, [](size_t i) { return i; }), WordsOf(20, [](size_t i) { return i; }), {}},
                      {0, 0, index},
                      {20, 1, 1}});
    EXPECT_EQ(trap.code == TrapCode::kOutOfBounds, index > 15);
  }
}

// An access that misses a buffer and lands on the stack traps, because no flat address refers to the stack.
TEST(GangStackTrapTest, ABufferIsMissed) {
  const struct {
    const char* access;
    uint32_t base;  // The buffer's base.
    std::vector<uint32_t> addresses;
  } kAccesses[] = {
      {"%w: i32 = load.i32 param(1) %far @9", 0x40000, {0x7fb8, 0x7fc0, 0x7ffc, 0x8000}},
      {"store.i32 param(0) %far, %v @9", 0x20000, {0x7fc0, 0x7ffc}},
      {"%w: i32 = atomic_add.i32 param(0) %far, %v @9", 0x20000, {0x7fc0, 0x7ffc}},
  };
  for (const auto& [access, base, addresses] : kAccesses) {
    SCOPED_TRACE(access);
    GangCompared kernel(InFrame("store.i32 stack %fp, %v\n%far: i32 = shl.i32 %v, %two\n" + std::string(access) +
                                "\n%back: i32 = load.i32 stack %fp\nstore.i32 flat %ra, %back"));
    for (const uint32_t address : addresses) {
      const ir::TrapReport trap =
          kernel.Check({{WordsOf(40, [](size_t i) { return i; }),
                         WordsOf(40, [&](size_t i) { return i == 7 ? (address - base) / 4 : 30; }),
                         {}},
                        {},
                        {20, 1, 1}});
      EXPECT_EQ(trap.code == TrapCode::kOutOfBounds, address >= 0x7fc0 && address < 0x8000) << address;
    }
  }
}

// A frame that is too large stays in module memory, and instances run one at a time.
TEST(GangStackTest, LargeFramesStay) {
  GangCompared kernel(OnStack("store.i32 flat %p, %v\n%w: i32 = load.i32 flat %fp + 4\nstore.i32 flat %ra, %w", "4096"),
                      /*is_refused=*/true);
}

}  // namespace
}  // namespace hpvm::cpu
