// SPDX-License-Identifier: Apache-2.0
// Compares control that lanes of a tile take separately, in every shape and level, with the interpreter.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "compiler/back/llvm/testing/gang_compare.h"

namespace hpvm::cpu {
namespace {

using testing::GangCompared;
using testing::GangInput;
using testing::KernelText;
using testing::WordsOf;

struct Case {
  const char* name;
  const char* body;
  const char* functions = "";
};

// The ways in which lanes diverge and reconverge.
constexpr Case kCases[] = {
    {"if_varying", R"(
  %c: i32 = lt_u.i32 %v, %seven
  %w: i32 = if b0 %c {
    %a: i32 = mul.i32 %v, %three
    br b0 (%a)
  } else {
    %b: i32 = add.i32 %v, %n
    br b0 (%b)
  }
  store.i32 flat %ra, %w
  return ()
)"},
    {"if_uniform_around_varying", R"(
  %w: i32 = if b0 %n {
    %c: i32 = and.i32 %v, %one
    %u: i32 = if b1 %c {
      br b1 (%id)
    } else {
      br b0 (%seven)
    }
    %t: i32 = add.i32 %u, %v
    br b0 (%t)
  } else {
    br b0 (%v)
  }
  store.i32 flat %ra, %w
  return ()
)"},
    {"store_in_one_arm", R"(
  %c: i32 = and.i32 %v, %two
  if b0 %c {
    store.i32 flat %ra, %v
    br b0 ()
  } else {
    br b0 ()
  }
  return ()
)"},
    // br_if over three blocks, with values.
    {"break_over_levels", R"(
  %w: i32 = block b0 () {
    %p: i32 = block b1 () {
      %q: i32 = block b2 () {
        %c: i32 = lt_u.i32 %v, %three
        if b3 %c {
          br b0 (%one)
        } else {
          br b3 ()
        }
        %d: i32 = lt_u.i32 %v, %seven
        if b4 %d {
          br b1 (%two)
        } else {
          br b2 (%v)
        }
        br b2 (%zero)
      }
      %q2: i32 = mul.i32 %q, %q
      br b1 (%q2)
    }
    %p2: i32 = add.i32 %p, %seven
    br b0 (%p2)
  }
  store.i32 flat %ra, %w
  return ()
)"},
    {"table", R"(
  %w: i32 = block b0 () {
    %p: i32 = block b1 () {
      %q: i32 = block b2 () {
        br_table %v [b2, b1, b0, b2, b1](%v)
      }
      %q2: i32 = add.i32 %q, %one
      br b1 (%q2)
    }
    %p2: i32 = mul.i32 %p, %three
    br b0 (%p2)
  }
  store.i32 flat %ra, %w
  return ()
)"},
    {"table_uniform", R"(
  %w: i32 = block b0 () {
    %p: i32 = block b1 () {
      br_table %n [b1, b0, b1](%v)
    }
    %p2: i32 = mul.i32 %p, %p
    br b0 (%p2)
  }
  store.i32 flat %ra, %w
  return ()
)"},
    {"trips_by_lane", R"(
  %sum: i32 = loop b0 (%i: i32 = %zero, %s: i32 = %zero) {
    %done: i32 = ge_u.i32 %i, %v
    if b1 %done {
      br b0 (%s)
    } else {
      br b1 ()
    }
    %s2: i32 = add.i32 %s, %i
    %i2: i32 = add.i32 %i, %one
    continue b0 (%i2, %s2)
  }
  store.i32 flat %ra, %sum
  return ()
)"},
    {"tested_last", R"(
  %sum: i32 = loop b0 (%i: i32 = %v, %s: i32 = %zero) {
    %s2: i32 = add.i32 %s, %i
    %i2: i32 = sub.i32 %i, %one
    %more: i32 = gt_s.i32 %i2, %zero
    if b1 %more {
      continue b0 (%i2, %s2)
    } else {
      br b1 ()
    }
    br b0 (%s2)
  }
  store.i32 flat %ra, %sum
  return ()
)"},
    // The values that a lane brings when it leaves are kept, whatever the other lanes do afterwards.
    {"results_of_two_exits", R"(
  %a: i32, %b: i32 = loop b0 (%i: i32 = %zero, %s: i32 = %one) {
    %early: i32 = eq.i32 %i, %v
    if b1 %early {
      br b0 (%i, %seven)
    } else {
      br b1 ()
    }
    %late: i32 = ge_u.i32 %i, %n
    if b2 %late {
      br b0 (%s, %i)
    } else {
      br b2 ()
    }
    %s2: i32 = mul.i32 %s, %three
    %i2: i32 = add.i32 %i, %one
    continue b0 (%i2, %s2)
  }
  %w: i32 = xor.i32 %a, %b
  store.i32 flat %ra, %w
  return ()
)"},
    {"select_by_any_bit", R"(
  %c: i32 = and.i32 %v, %two
  %w: i32 = select.i32 %c, %id, %seven
  store.i32 flat %ra, %w
  return ()
)"},
    // After the twelfth instance the index wraps.
    {"index_that_wraps", R"(
  %most: i32 = const.i32 0x7ffffff4
  %far: i32 = const.i32 32
  %bits: i64 = extend_u.i32 %far
  %j: i32 = add.i32 %id, %most
  %wide: i64 = extend_s.i32 %j
  %high: i64 = shr_s.i64 %wide, %bits
  %w: i32 = wrap.i64 %high
  store.i32 flat %ra, %w
  return ()
)"},
    {"jump_out_of_a_loop", R"(
  %last: i32 = and.i32 %v, %seven
  %w: i32 = block out () {
    loop again (%i: i32 = %zero) {
      %c: i32 = ge_u.i32 %i, %last
      if b0 %c {
        br out (%i)
      } else {
        br b0 ()
      }
      %i2: i32 = add.i32 %i, %one
      continue again (%i2)
    }
    trap 1
  }
  store.i32 flat %ra, %w
  return ()
)"},
    {"continue_by_lane", R"(
  %sum: i32 = loop b0 (%i: i32 = %zero, %s: i32 = %zero) {
    %i2: i32 = add.i32 %i, %one
    %done: i32 = gt_u.i32 %i2, %n
    if b1 %done {
      br b0 (%s)
    } else {
      br b1 ()
    }
    %t: i32 = add.i32 %i, %v
    %odd: i32 = and.i32 %t, %one
    if b2 %odd {
      continue b0 (%i2, %s)
    } else {
      br b2 ()
    }
    %s2: i32 = add.i32 %s, %t
    continue b0 (%i2, %s2)
  }
  store.i32 flat %ra, %sum
  return ()
)"},
    {"continue_outer", R"(
  %sum: i32 = loop b0 (%i: i32 = %zero, %s: i32 = %zero) {
    %i2: i32 = add.i32 %i, %one
    %done: i32 = gt_u.i32 %i2, %three
    if b1 %done {
      br b0 (%s)
    } else {
      br b1 ()
    }
    %inner: i32 = loop b2 (%j: i32 = %zero, %t: i32 = %s) {
      %j2: i32 = add.i32 %j, %one
      %last: i32 = gt_u.i32 %j2, %n
      if b3 %last {
        br b2 (%t)
      } else {
        br b3 ()
      }
      %k: i32 = add.i32 %i, %j
      %skip: i32 = eq.i32 %k, %v
      if b4 %skip {
        continue b0 (%i2, %t)
      } else {
        br b4 ()
      }
      %stop: i32 = gt_u.i32 %k, %v
      if b5 %stop {
        br b0 (%t)
      } else {
        br b5 ()
      }
      %t2: i32 = add.i32 %t, %k
      continue b2 (%j2, %t2)
    }
    %s2: i32 = mul.i32 %inner, %three
    continue b0 (%i2, %s2)
  }
  store.i32 flat %ra, %sum
  return ()
)"},
    // The carried values are swapped.
    {"swapped_arguments", R"(
  %p: i32, %q: i32 = loop b0 (%i: i32 = %v, %a: i32 = %one, %b: i32 = %id) {
    %done: i32 = le_s.i32 %i, %zero
    if b1 %done {
      br b0 (%a, %b)
    } else {
      br b1 ()
    }
    %i2: i32 = sub.i32 %i, %one
    continue b0 (%i2, %b, %a)
  }
  %w: i32 = shl.i32 %p, %seven
  %w2: i32 = add.i32 %w, %q
  store.i32 flat %ra, %w2
  return ()
)"},
    {"early_return", R"(
  %c: i32 = lt_u.i32 %v, %three
  if b0 %c {
    return ()
  } else {
    br b0 ()
  }
  store.i32 flat %ra, %v
  return ()
)"},
    {"return_in_loop", R"(
  loop b0 (%i: i32 = %zero) {
    %done: i32 = eq.i32 %i, %v
    if b1 %done {
      return ()
    } else {
      br b1 ()
    }
    store.i32 flat %ra, %i
    %last: i32 = ge_u.i32 %i, %n
    if b2 %last {
      br b0 ()
    } else {
      br b2 ()
    }
    %i2: i32 = add.i32 %i, %one
    continue b0 (%i2)
  }
  store.i32 flat %ra, %seven
  return ()
)"},
    {"all_lanes_return", R"(
  %c: i32 = ge_u.i32 %v, %zero
  if b0 %c {
    return ()
  } else {
    br b0 ()
  }
  store.i32 flat %ra, %v
  return ()
)"},
    // After the loop all lanes are active again, in a uniform loop around it.
    {"uniform_loop_around", R"(
  %sum: i32 = loop b0 (%i: i32 = %zero, %s: i32 = %v) {
    %done: i32 = ge_u.i32 %i, %n
    if b1 %done {
      br b0 (%s)
    } else {
      br b1 ()
    }
    %c: i32 = and.i32 %s, %one
    %s2: i32 = if b2 %c {
      %a: i32 = mul.i32 %s, %three
      br b2 (%a)
    } else {
      %b: i32 = shr_u.i32 %s, %one
      br b2 (%b)
    }
    %i2: i32 = add.i32 %i, %one
    continue b0 (%i2, %s2)
  }
  store.i32 flat %ra, %sum
  return ()
)"},
    {"call_recursive", R"(
  %c: i32 = and.i32 %v, %one
  %w: i32 = if b0 %c {
    %f: i32 = call f1 (%v)
    br b0 (%f)
  } else {
    br b0 (%id)
  }
  store.i32 flat %ra, %w
  return ()
)",
     R"(func f1 "sum" (%i: i32) -> (i32) {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %small: i32 = le_s.i32 %i, %zero
  if b0 %small {
    return (%zero)
  } else {
    br b0 ()
  }
  %j: i32 = sub.i32 %i, %one
  %f: i32 = call f1 (%j)
  %g: i32 = add.i32 %f, %i
  return (%g)
}
)"},
    {"call_inlined_with_return", R"(
  %w: i32 = call f1 (%v, %n)
  store.i32 flat %ra, %w
  return ()
)",
     R"(func f1 "pick" (%a: i32, %b: i32) -> (i32) {
  %c: i32 = lt_u.i32 %a, %b
  if b0 %c {
    return (%b)
  } else {
    br b0 ()
  }
  %d: i32 = sub.i32 %a, %b
  return (%d)
}
)"},
};

std::vector<std::vector<uint8_t>> Contents(size_t count) {
  return {WordsOf(count, [](size_t i) { return (i * 2654435761u >> 7) & 15; }),
          WordsOf(count, [](size_t) { return 5; }), WordsOf(count, [](size_t i) { return i % 11; })};
}

class GangControlTest : public ::testing::TestWithParam<Case> {};

// Covers every extent around the widths: lanes that agree, that all differ, and that fill only part of a tile.
TEST_P(GangControlTest, Agrees) {
  GangCompared kernel(KernelText(GetParam().body, GetParam().functions));
  for (uint64_t extent : {1, 2, 3, 4, 5, 8, 13, 15, 16, 17, 32, 33, 50}) {
    for (const std::vector<uint8_t>& x : Contents(extent)) {
      for (uint64_t n : {0, 1, 6}) {
        kernel.Check({{WordsOf(extent, [](size_t i) { return 1000 + i; }), x, {}}, {0, 0, n}, {extent, 1, 1}});
        if (HasFatalFailure() || HasNonfatalFailure()) {
          return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GangControlTest, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Rows and columns of a tile end where the extent does, in x and in y.
TEST(GangTailTest, EveryExtentInTwoDimensions) {
  GangCompared kernel(std::string(R"(module "tail"
param buffer inout "r"
entry f0
func f0 "tail" (%r: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %x: i32 = instance_id.i32 %zero
  %y: i32 = instance_id.i32 %one
  %w: i32 = instance_count.i32 %zero
  %row: i32 = mul.i32 %y, %w
  %i: i32 = add.i32 %row, %x
  %at: i32 = shl.i32 %i, %two
  %ra: i32 = add.i32 %r, %at
  %old: i32 = load.i32 flat %ra
  %p: i32 = mul.i32 %y, %y
  %q: i32 = add.i32 %p, %x
  %s: i32 = add.i32 %q, %old
  store.i32 flat %ra, %s
  return ()
}
)"));
  for (uint64_t y = 1; y <= 7; ++y) {
    for (uint64_t x = 1; x <= 33; ++x) {
      kernel.Check({{WordsOf(x * y, [](size_t i) { return i * 100; })}, {}, {x, y, 1}});
    }
  }
  EXPECT_GT(kernel.unchecked_runs, 0u);
}

// Rows of a tile diverge from each other: the values that a row brings, per lane or per row, do not affect other rows.
TEST(GangTailTest, RowsBlendTheirOwn) {
  GangCompared kernel(std::string(R"(module "rows"
param buffer inout "r"
entry f0
func f0 "rows" (%r: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %x: i32 = instance_id.i32 %zero
  %y: i32 = instance_id.i32 %one
  %w: i32 = instance_count.i32 %zero
  %row: i32 = mul.i32 %y, %w
  %i: i32 = add.i32 %row, %x
  %at: i32 = shl.i32 %i, %two
  %below: i32 = lt_u.i32 %x, %y
  %lane: i32 = if b0 %below {
    %p: i32 = mul.i32 %y, %y
    br b0 (%p)
  } else {
    %q: i32 = mul.i32 %y, %x
    br b0 (%q)
  }
  %odd: i32 = and.i32 %y, %one
  %whole: i32 = if b1 %odd {
    %s: i32 = shl.i32 %y, %two
    br b1 (%s)
  } else {
    %t: i32 = sub.i32 %y, %two
    br b1 (%t)
  }
  %sum: i32 = mul.i32 %lane, %at
  %both: i32 = add.i32 %sum, %whole
  store.i32 param(0) %at, %both
  return ()
}
)"));
  for (uint64_t y : {2, 3, 7}) {
    for (uint64_t x : {3, 16, 33}) {
      kernel.Check({{WordsOf(x * y, [](size_t i) { return i; })}, {}, {x, y, 1}});
    }
  }
}

// A trap names its instance along either axis of the lanes, and results agree.
TEST(GangTailTest, TrapsAlongBothAxes) {
  GangCompared kernel(KernelText(R"(
  %y: i32 = instance_id.i32 %one
  %width: i32 = instance_count.i32 %zero
  %row: i32 = mul.i32 %y, %width
  %place: i32 = add.i32 %row, %id
  %off: i32 = shl.i32 %place, %two
  %p: i32 = add.i32 %r, %off
  %left: i32 = sub.i32 %n, %place
  %s: i32 = div_s.i32 %place, %left
  store.i32 flat %p, %s
  return ()
)"));
  bool lies_along_y = false;
  for (const auto& image : kernel.images()) {
    for (const CpuVariant& variant : image->artifact().variants) {
      lies_along_y = lies_along_y || variant.is_along_y;
    }
  }
  EXPECT_TRUE(lies_along_y);
  for (const uint64_t x : {1, 3, 40}) {
    for (const uint64_t n : {0, 2, 29, 65, 100000}) {
      const ir::TrapReport trap =
          kernel.Check({{WordsOf(40 * 37, [](size_t i) { return i; }), WordsOf(40, [](size_t i) { return i; }), {}},
                        {0, 0, n},
                        {x, 37, 1}});
      EXPECT_EQ(trap.code, n < x * 37 ? ir::TrapCode::kDivideByZero : ir::TrapCode::kNone);
    }
  }
}

// Each instance prints the same lines as alone, in the same order: under a mask, in loops that lanes leave separately,
// in rows, before and after stores and in a called function.
TEST(GangPrintTest, EachInstancePrintsItsOwn) {
  GangCompared kernel(KernelText(R"(
  %y: i32 = instance_id.i32 %one
  %width: i32 = const.i32 50
  %f: f64 = convert_s.i32 %v
  %g: f32 = convert_s.i32 %n
  print p0 (%id, %f)
  %odd: i32 = and.i32 %v, %one
  if b0 %odd {
    print p1 (%y, %g)
    br b0 ()
  } else {
    br b0 ()
  }
  %row: i32 = mul.i32 %y, %width
  %place: i32 = add.i32 %row, %id
  %off: i32 = shl.i32 %place, %two
  %p: i32 = add.i32 %r, %off
  store.i32 flat %p, %place
  %trips: i32 = and.i32 %v, %three
  %end: i32 = loop b1 (%i: i32 = %trips) {
    print p2 ()
    print p3 (%i)
    if b2 %i {
      %j: i32 = sub.i32 %i, %one
      continue b1 (%j)
    } else {
      br b1 (%i)
    }
    br b1 (%i)
  }
  %called: i32 = call f1 (%end)
  store.i32 flat %p, %called
  return ()
)",
                                 R"(
func f1 "callee" (%a: i32) -> (i32) {
  print p3 (%a)
  return (%a)
}
)",
                                 "format \"%d %g\"\nformat \"%u %g\"\nformat \"here\"\nformat \"%d\"\n"));
  for (const uint64_t x : {1, 7, 16, 33, 50}) {
    for (const uint64_t y : {1, 3, 4}) {
      kernel.Check({{WordsOf(50 * 4, [](size_t i) { return i; }), WordsOf(50, [](size_t i) { return i * 7 + 3; }), {}},
                    {0, 0, 5},
                    {x, y, 1}});
    }
  }
  EXPECT_GT(kernel.unchecked_runs, 0u);
}

// A loop that never ends in some lanes is left when the stop word is set.
TEST(GangStopTest, EndlessLoopsStop) {
  GangCompared kernel(KernelText(R"(
  %bits: i32 = and.i32 %v, %one
  loop b0 () @40 {
    if b1 %bits {
      continue b0 () @41
    } else {
      br b0 ()
    }
    br b0 ()
  }
  store.i32 flat %ra, %seven
  return ()
)"));
  const std::vector<uint8_t> x = WordsOf(40, [](size_t i) { return i % 3 == 1 ? 1 : 0; });
  for (const auto& image : kernel.images()) {
    for (const CpuVariant& variant : image->artifact().variants) {
      std::vector<uint64_t> r(20), words(20);
      std::memcpy(words.data(), x.data(), x.size());
      std::atomic<uint32_t> stop{0};
      ir::Launch launch;
      launch.extent = {40, 1, 1};
      launch.arguments = {
          {reinterpret_cast<uint8_t*>(r.data()), 160, 0}, {reinterpret_cast<uint8_t*>(words.data()), 160, 0}, {}};
      launch.stop = &stop;
      ir::AddressSpace space{{0x10000, 0x30000, 0}, 0, false};
      std::thread stopper([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        stop = 1;
      });
      EXPECT_EQ(image->RunVariant(launch, space, variant).trap.code, ir::TrapCode::kStopped);
      stopper.join();
    }
  }
}

}  // namespace
}  // namespace hpvm::cpu
