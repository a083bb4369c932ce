// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/find_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/testing/random_kernel.h"

namespace hpvm::pass {
namespace {

bool Proven(const ir::BoundsProgram& program, const testing::KernelLaunch& launch) {
  ir::BoundsFacts facts;
  facts.extent = launch.extent;
  facts.params = {{true, true, launch.bytes, 32}, {false, false, launch.n, 32}, {false, false, launch.m, 32}};
  return ir::ProveBounds(program, facts);
}

// More values than a launch can analyse, none of which matters to an access.
const std::string kNoise = testing::NoisyValues(2 * kBoundsAtomsMax, "noise");

constexpr char kStore[] = " store.i32 param(0) %o, %x\n";
// The end of a loop l that continues with %t if %g holds.
constexpr char kLoopEnd[] = " if ge %g {\n continue l (%t)\n} else {\n br ge ()\n}\n br l ()\n}\n";
// Returns the offset of element %i.
std::string At(const std::string& i) { return " %o: i32 = shl.i32 %" + i + ", %c2\n" + kStore; }

// Common shapes of kernels are proven exactly from the size at which they fit.
TEST(FindBoundsTest, KnownKernels) {
  struct Case {
    const char* name;
    std::string body;
    testing::KernelLaunch fits;  // With 4 bytes less it must not be proven.
    size_t accesses = 1;
  };
  const std::string guard = " %g: i32 = lt_u.i32 %x, %n\n if g0 %g {\n";
  const std::string else_end = " br g0 ()\n} else {\n br g0 ()\n}\n";
  const Case kCases[] = {
      {"Direct", At("x"), {{10, 1, 1}, 40, 0, 0}},
      {"TwoDimensions", " %r: i32 = mul.i32 %y, %n\n %i: i32 = add.i32 %r, %x\n" + At("i"), {{7, 5, 1}, 4 * 35, 7, 0}},
      {"Guarded", guard + At("x") + else_end, {{64, 1, 1}, 40, 10, 0}},
      {"GuardBeforeReturn",
       " %g: i32 = ge_u.i32 %x, %n\n if g0 %g {\n return ()\n} else {\n br g0 ()\n}\n" + At("x"),
       {{64, 1, 1}, 40, 10, 0}},
      {"GuardOutOfBlock",
       "block e () {\n %g: i32 = ge_s.i32 %x, %n\n if g0 %g {\n br e ()\n} else {\n br g0 ()\n}\n" + At("x") +
           " br e ()\n}\n",
       {{64, 1, 1}, 40, 10, 0}},
      {"InnerStencil",  // 1 <= x < n - 1 as one comparison, then element x - 1.
       " %d: i32 = sub.i32 %x, %c1\n %w: i32 = sub.i32 %n, %c2\n %g: i32 = lt_u.i32 %d, %w\n if g0 %g {\n" + At("d") +
           else_end,
       {{64, 1, 1}, 4 * 8, 10, 0}},
      {"CountedLoop",
       " loop l (%i: i32 = %c0) {\n" + At("i") +
           " %j: i32 = add.i32 %i, %c1\n %g: i32 = lt_u.i32 %j, %n\n if g0 %g {\n continue l (%j)\n} else {\n"
           " br g0 ()\n}\n br l ()\n}\n",
       {{1, 1, 1}, 40, 10, 0}},
      {"LoopUntilEqual",
       " loop l (%i: i32 = %c0) {\n" + At("i") +
           " %j: i32 = add.i32 %i, %c1\n %g: i32 = ne.i32 %j, %n\n if g0 %g {\n continue l (%j)\n} else {\n"
           " br g0 ()\n}\n br l ()\n}\n",
       {{1, 1, 1}, 40, 10, 0}},
      {"CountdownAndPointer",  // A row of n elements per instance, as LLVM's strength reduction writes it.
       " %q: i32 = mul.i32 %x, %n\n %p: i32 = shl.i32 %q, %c2\n loop l (%a: i32 = %p, %k: i32 = %n) {\n"
       " store.i32 param(0) %a, %x\n %e: i32 = add.i32 %a, %c4\n %j: i32 = sub.i32 %k, %c1\n if g0 %j {\n"
       " continue l (%e, %j)\n} else {\n br g0 ()\n}\n br l ()\n}\n",
       {{6, 1, 1}, 4 * 60, 10, 0}},
      {"PointerToEnd",
       " %q: i32 = mul.i32 %x, %n\n %p: i32 = shl.i32 %q, %c2\n %s: i32 = shl.i32 %n, %c2\n %z: i32 = add.i32 %p, %s\n"
       " loop l (%a: i32 = %p) {\n store.i32 param(0) %a, %x\n %e: i32 = add.i32 %a, %c4\n %g: i32 = ne.i32 %e, %z\n"
       " if g0 %g {\n continue l (%e)\n} else {\n br g0 ()\n}\n br l ()\n}\n",
       {{6, 1, 1}, 4 * 60, 10, 0}},
      {"NestedLoops",
       " loop l (%i: i32 = %c0) {\n loop k (%j: i32 = %c0) {\n %r: i32 = mul.i32 %i, %m\n %t: i32 = add.i32 %r, %j\n" +
           At("t") +
           " %j2: i32 = add.i32 %j, %c1\n %g: i32 = lt_s.i32 %j2, %m\n if g0 %g {\n continue k (%j2)\n} else {\n"
           " br g0 ()\n}\n br k ()\n}\n %i2: i32 = add.i32 %i, %c1\n %h: i32 = lt_s.i32 %i2, %n\n if h0 %h {\n"
           " continue l (%i2)\n} else {\n br h0 ()\n}\n br l ()\n}\n",
       {{1, 1, 1}, 4 * 12, 3, 4}},
      {"LeftOver",  // The remainder of a loop that was unrolled by 2: empty, for an even n.
       " %r: i32 = and.i32 %n, %c1\n if g0 %r {\n" + At("n") + else_end +
           " %l: i32 = sub.i32 %n, %c1\n %q: i32 = shl.i32 %l, %c2\n store.i32 param(0) %q, %x\n",
       {{1, 1, 1}, 40, 10, 0},
       2},
      {"Clamped", " %g: i32 = lt_s.i32 %x, %n\n %i: i32 = select.i32 %g, %x, %c3\n" + At("i"), {{64, 1, 1}, 40, 10, 0}},
      {"NextOrFirst",
       " %l: i32 = sub.i32 %n, %c1\n %g: i32 = eq.i32 %l, %x\n %j: i32 = add.i32 %x, %c1\n"
       " %i: i32 = select.i32 %g, %c0, %j\n" +
           At("i"),
       {{10, 1, 1}, 40, 10, 0}},
      {"Diagonal",
       " %i: i32 = add.i32 %x, %y\n %g: i32 = lt_s.i32 %i, %n\n if g0 %g {\n" + At("i") + else_end,
       {{8, 8, 1}, 40, 10, 0}},
      {"ClampedSum",
       " %s: i32 = add.i32 %x, %y\n %d: i32 = sub.i32 %s, %c3\n %l: i32 = sub.i32 %n, %c1\n"
       " %g: i32 = lt_s.i32 %d, %c0\n %h: i32 = lt_s.i32 %d, %l\n %k: i32 = select.i32 %h, %d, %l\n"
       " %i: i32 = select.i32 %g, %c0, %k\n" +
           At("i"),
       {{8, 8, 1}, 40, 10, 0}},
      {"Coordinate",  // x - x / n * n, as LLVM writes a remainder beside its quotient.
       " %q: i32 = div_u.i32 %x, %n\n %p: i32 = mul.i32 %q, %n\n %i: i32 = sub.i32 %x, %p\n" + At("i"),
       {{64, 1, 1}, 40, 10, 0}},
      {"Remainder", " %i: i32 = rem_u.i32 %x, %n\n" + At("i"), {{64, 1, 1}, 40, 10, 0}},
      {"Complement",  // Element n - 1 - x, counted down from the end.
       " %k: i32 = xor.i32 %x, %ones\n %i: i32 = add.i32 %n, %k\n" + At("i"),
       {{10, 1, 1}, 40, 10, 0}},
      {"OrIntoAligned", " %d: i32 = shl.i32 %x, %c2\n %i: i32 = or.i32 %d, %c3\n" + At("i"), {{5, 1, 1}, 80, 0, 0}},
      {"AlignedDown", " %d: i32 = mul.i32 %x, %c8\n %i: i32 = and.i32 %d, %fours\n" + At("i"), {{5, 1, 1}, 132, 0, 0}},
      {"Quotient", " %i: i32 = div_u.i32 %x, %c2\n" + At("i"), {{64, 1, 1}, 128, 0, 0}},
  };
  for (const Case& c : kCases) {
    for (const std::string& noise : {std::string(), kNoise}) {
      SCOPED_TRACE(c.name);
      const ir::BoundsProgram program = FindBounds(testing::BoundsKernel(noise + c.body));
      EXPECT_EQ(program.accesses.size(), c.accesses);
      EXPECT_TRUE(program.is_complete);
      EXPECT_TRUE(Proven(program, c.fits));
      testing::KernelLaunch tight = c.fits;
      tight.bytes -= 4;
      EXPECT_FALSE(Proven(program, tight));
    }
  }
}

// Loops that double or halve are proven exactly from the size at which they fit.
TEST(FindBoundsTest, DoublingAndHalving) {
  const std::string halves = " %t: i32 = shr_u.i32 %s, %c1\n %g: i32 = ne.i32 %t, %c0\n" + std::string(kLoopEnd);
  const auto doubles = [](const std::string& compare) {
    return " %t: i32 = shl.i32 %s, %c1\n %g: i32 = " + compare + ".i32 %t, %n\n" + kLoopEnd;
  };
  const std::string twice = " %d: i32 = shl.i32 %x, %c1\n", mask = " %k: i32 = sub.i32 %s, %c1\n";
  // Element 2 x - (x & (s - 1)) + s.
  const std::string upper = mask + " %w: i32 = and.i32 %x, %k\n %p: i32 = sub.i32 %d, %w\n %i: i32 = add.i32 %p, %s\n";
  const std::string guard_end = " br g0 ()\n} else {\n br g0 ()\n}\n";
  struct Case {
    const char* name;
    std::string body;
    testing::KernelLaunch fits;  // With 4 bytes less it must not be proven.
  };
  const Case kCases[] = {
      {"Doubled", " loop l (%s: i32 = %c1) {\n" + At("s") + doubles("lt_u"), {{1, 1, 1}, 4 * 9, 10, 0}},
      {"DoubledWithSign", " loop l (%s: i32 = %c1) {\n" + At("s") + doubles("lt_s"), {{1, 1, 1}, 4 * 9, 10, 0}},
      {"DoubledBeforeTheTest",
       " loop l (%s: i32 = %c2) {\n" + At("s") + " %t: i32 = shl.i32 %s, %c1\n %g: i32 = lt_u.i32 %s, %n\n" + kLoopEnd,
       {{1, 1, 1}, 4 * 19, 10, 0}},
      {"Tripled",
       " loop l (%s: i32 = %c1) {\n" + At("s") + " %t: i32 = mul.i32 %s, %c3\n %g: i32 = lt_u.i32 %t, %n\n" + kLoopEnd,
       {{1, 1, 1}, 40, 10, 0}},
      {"Halved", " loop l (%s: i32 = %n) {\n" + At("s") + halves, {{1, 1, 1}, 44, 10, 0}},
      {"HalvedWithSign",
       " loop l (%s: i32 = %n) {\n" + At("s") + " %t: i32 = shr_s.i32 %s, %c1\n %g: i32 = gt_s.i32 %t, %c0\n" +
           kLoopEnd,
       {{1, 1, 1}, 44, 10, 0}},
      {"TreeSum",
       " loop l (%s: i32 = %n) {\n %a: i32 = lt_u.i32 %x, %s\n if g0 %a {\n %i: i32 = add.i32 %x, %s\n" + At("i") +
           guard_end + halves,
       {{64, 1, 1}, 4 * 16, 8, 0}},
      {"ScanBack",
       " loop l (%s: i32 = %c1) {\n %a: i32 = ge_u.i32 %x, %s\n if g0 %a {\n %i: i32 = sub.i32 %x, %s\n" + At("i") +
           guard_end + doubles("lt_s"),
       {{10, 1, 1}, 4 * 9, 10, 0}},
      {"LowerHalf",
       twice + " loop l (%s: i32 = %n) {\n" + mask + " %w: i32 = and.i32 %x, %k\n %i: i32 = sub.i32 %d, %w\n" +
           At("i") + halves,
       {{16, 1, 1}, 4 * 31, 16, 0}},
      {"UpperHalf", twice + " loop l (%s: i32 = %n) {\n" + upper + At("i") + halves, {{16, 1, 1}, 4 * 32, 16, 0}},
      {"UpperHalfOfManyBlocks",
       twice + " loop l (%s: i32 = %n) {\n" + upper + At("i") + halves,
       {{48, 1, 1}, 4 * 96, 16, 0}},
      {"UpperHalfOfPartOfABlock",
       twice + " loop l (%s: i32 = %n) {\n" + upper + At("i") + halves,
       {{10, 1, 1}, 4 * 26, 16, 0}},
      {"UpperHalfByShift",
       twice + " loop l (%e: i32 = %c0) {\n %s: i32 = shl.i32 %c1, %e\n" + upper + At("i") +
           " %t: i32 = add.i32 %e, %c1\n %g: i32 = lt_u.i32 %t, %n\n" + kLoopEnd,
       {{24, 1, 1}, 4 * 48, 4, 0}},
      {"UpperHalfByComplement",  // (x & -s) * 2 + (x & (s - 1)) + s
       " loop l (%s: i32 = %n) {\n" + mask +
           " %m0: i32 = sub.i32 %c0, %s\n %a: i32 = and.i32 %m0, %x\n %d: i32 = shl.i32 %a, %c1\n"
           " %w: i32 = and.i32 %x, %k\n %p: i32 = add.i32 %d, %w\n %i: i32 = add.i32 %p, %s\n" +
           At("i") + halves,
       {{16, 1, 1}, 4 * 32, 16, 0}},
      {"Sort",  // Sizes that double, strides that halve.
       twice + " loop q (%z: i32 = %c2) {\n %s0: i32 = shr_u.i32 %z, %c1\n loop l (%s: i32 = %s0) {\n" + upper +
           At("i") + halves +
           " %z2: i32 = shl.i32 %z, %c1\n %h: i32 = lt_u.i32 %z, %n\n if h0 %h {\n continue q (%z2)\n} else {\n"
           " br h0 ()\n}\n br q ()\n}\n",
       {{16, 1, 1}, 4 * 32, 17, 0}},
  };
  for (const Case& c : kCases) {
    for (const std::string& noise : {std::string(), kNoise}) {
      SCOPED_TRACE(c.name);
      const ir::BoundsProgram program = FindBounds(testing::BoundsKernel(noise + c.body));
      EXPECT_EQ(program.accesses.size(), 1u);
      EXPECT_TRUE(Proven(program, c.fits));
      testing::KernelLaunch tight = c.fits;
      tight.bytes -= 4;
      EXPECT_FALSE(Proven(program, tight));
    }
  }
}

// Doubling without a test wraps around; masking with a number that is no power of two does not leave a multiple.
TEST(FindBoundsTest, DoublingTraps) {
  const std::string upper =
      " %d: i32 = shl.i32 %x, %c1\n %k: i32 = sub.i32 %n, %c1\n %w: i32 = and.i32 %x, %k\n %p: i32 = sub.i32 %d, %w\n"
      " %i: i32 = add.i32 %p, %n\n" +
      At("i");
  const std::string twice = " %t: i32 = shl.i32 %s, %c1\n";
  struct Case {
    const char* name;
    std::string body;
    testing::KernelLaunch launch;
  };
  const Case kCases[] = {
      {"Unguarded",
       " loop l (%s: i32 = %c1) {\n" + At("s") + twice + " %g: i32 = ne.i32 %t, %n\n" + kLoopEnd,
       {{1, 1, 1}, 4000, 9, 0}},
      {"GuardedByAnother",
       " loop l (%s: i32 = %c1) {\n" + At("s") + twice + " %g: i32 = lt_u.i32 %m, %n\n" + kLoopEnd,
       {{1, 1, 1}, 4000, 9, 3}},
      {"GuardedFromBelow",
       " loop l (%s: i32 = %c1) {\n" + At("s") + twice + " %g: i32 = gt_u.i32 %s, %m\n" + kLoopEnd,
       {{1, 1, 1}, 4000, 9, 0}},
      {"NegativeHalves",
       " loop l (%s: i32 = %n) {\n" + At("s") + " %t: i32 = shr_s.i32 %s, %c1\n %g: i32 = ne.i32 %t, %c0\n" + kLoopEnd,
       {{1, 1, 1}, 4000, 0xfffffff6u, 0}},
      {"AddedTo",  // One of two back edges adds.
       " loop l (%s: i32 = %c1) {\n" + At("s") + twice +
           " %u: i32 = add.i32 %s, %c1\n %g: i32 = lt_u.i32 %t, %n\n"
           " if g2 %m {\n continue l (%u)\n} else {\n br g2 ()\n}\n" +
           kLoopEnd,
       {{1, 1, 1}, 4000, 9, 3}},
      {"NoPowerOfTwo", upper, {{12, 1, 1}, 4 * 24, 6, 0}},        // x = 11: 27
      {"PartOfABlock", upper, {{9, 1, 1}, 4 * 20, 8, 0}},         // x = 8: 24
      {"BehindTheBlocks", upper, {{8, 1, 1}, 4 * 16 - 4, 8, 0}},  // x = 7: 15
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_FALSE(Proven(FindBounds(testing::BoundsKernel(c.body)), c.launch));
    EXPECT_FALSE(Proven(FindBounds(testing::BoundsKernel(kNoise + c.body)), c.launch));
  }
}

// A loop with two back edges, one of which advances: the distance is unknown.
TEST(FindBoundsTest, StepsOfTwoWays) {
  for (const bool is_first : {true, false}) {
    const std::string first = is_first ? "j" : "i", second = is_first ? "i" : "j";
    const std::string body =
        " loop l (%i: i32 = %c0) {\n" + At("i") + " %j: i32 = add.i32 %i, %c1\n if g0 %n {\n continue l (%" + first +
        ")\n} else {\n br g0 ()\n}\n if g1 %m {\n continue l (%" + second + ")\n} else {\n br g1 ()\n}\n br l ()\n}\n";
    EXPECT_FALSE(Proven(FindBounds(testing::BoundsKernel(body, true)), {{1, 1, 1}, 40, 1, 1})) << is_first;
  }
}

// Facts about a loop's iterations do not apply to instances that skip the loop.
TEST(FindBoundsTest, LoopsTellOfTheirIterationsOnly) {
  const std::string loop =
      " %a: i32 = ge_u.i32 %x, %c2\n if g0 %a {\n loop l (%j: i32 = %c2) {\n %t: i32 = add.i32 %j, %c1\n"
      " %g: i32 = lt_u.i32 %j, %x\n" +
      std::string(kLoopEnd) + " br g0 ()\n} else {\n br g0 ()\n}\n";
  const std::string store = " %i: i32 = sub.i32 %x, %c2\n" + At("i");
  for (const std::string& body : {loop + store, store + loop}) {
    EXPECT_FALSE(Proven(FindBounds(testing::BoundsKernel(body)), {{10, 1, 1}, 400, 0, 0}));
  }
}

// Accesses that seem bounded, but wrap around, never end or depend on memory, are not proven.
TEST(FindBoundsTest, Traps) {
  struct Case {
    const char* name;
    std::string body;
    testing::KernelLaunch launch;
  };
  const std::string loop_end = " if g0 %g {\n continue l (%j)\n} else {\n br g0 ()\n}\n br l ()\n}\n";
  const Case kCases[] = {
      {"NegativeScalarIsHuge",
       " %g: i32 = lt_u.i32 %x, %n\n if g0 %g {\n" + At("x") + " br g0 ()\n} else {\n br g0 ()\n}\n",
       {{64, 1, 1}, 40, 0xffffffffu, 0}},
      {"SteppedOver",  // 0, 2, 4 ... is never 9.
       " loop l (%i: i32 = %c0) {\n" + At("i") + " %j: i32 = add.i32 %i, %c2\n %g: i32 = ne.i32 %j, %n\n" + loop_end,
       {{1, 1, 1}, 4000, 9, 0}},
      {"NotEqualFromAbove",
       " loop l (%i: i32 = %c5) {\n" + At("i") + " %j: i32 = add.i32 %i, %c1\n %g: i32 = ne.i32 %j, %n\n" + loop_end,
       {{1, 1, 1}, 4000, 3, 0}},
      {"WrapsBeforeTheBound",
       " loop l (%i: i32 = %c0) {\n" + At("i") + " %j: i32 = add.i32 %i, %m\n %g: i32 = lt_u.i32 %j, %n\n" + loop_end,
       {{1, 1, 1}, 4000, 0xffffffffu, 0x60000000u}},
      {"MaskedMemory",
       " %k: i32 = load.i32 param(0) %c0\n %i: i32 = and.i32 %k, %n\n" + At("i"),
       {{1, 1, 1}, 4000, 0x7fffffff, 0}},
      {"BeyondAllNumbers",  // x^4 + y^4 of 16-bit numbers above n, times 2^39, shifted down: any multiple of 32.
       " %u: i64 = load.i64 w2 param(0) %c0\n %v: i64 = load.i64 w2 param(0) %c2\n %l: i64 = extend_u.i32 %n\n"
       " %gu: i32 = lt_u.i64 %u, %l\n %gv: i32 = lt_u.i64 %v, %l\n %g: i32 = or.i32 %gu, %gv\n if g0 %g {\n"
       " return ()\n} else {\n br g0 ()\n}\n %u2: i64 = mul.i64 %u, %u\n %u4: i64 = mul.i64 %u2, %u2\n"
       " %v2: i64 = mul.i64 %v, %v\n %v4: i64 = mul.i64 %v2, %v2\n %s: i64 = add.i64 %u4, %v4\n"
       " %left: i64 = const.i64 39\n %right: i64 = const.i64 34\n %t: i64 = shl.i64 %s, %left\n"
       " %w: i64 = shr_u.i64 %t, %right\n %i: i32 = wrap.i64 %w\n" +
           At("i"),
       {{1, 1, 1}, 4000, 32768, 0}},
      {"Multiplied", " %i: i32 = mul.i32 %x, %n\n" + At("i"), {{10, 1, 1}, 40, 0x10000000u, 0}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_FALSE(Proven(FindBounds(testing::BoundsKernel(c.body)), c.launch));
    EXPECT_FALSE(Proven(FindBounds(testing::BoundsKernel(kNoise + c.body)), c.launch));
  }
}

// Accesses of a large kernel beyond the limit are dropped, and the program says that it is not complete.
TEST(FindBoundsTest, TooManyAccesses) {
  std::string body;
  for (size_t i = 0; i <= kBoundsAccessesMax; ++i) {
    body += " %l" + std::to_string(i) + ": i32 = load.i32 param(0) %c0\n";
  }
  const ir::BoundsProgram program = FindBounds(testing::BoundsKernel(body));
  EXPECT_EQ(program.accesses.size(), kBoundsAccessesMax);
  EXPECT_FALSE(program.is_complete);
}

// A kernel that only reads its buffer, and a launch that knows its words.
struct Reading {
  explicit Reading(const std::string& body, uint64_t bytes) : module(testing::BoundsKernel(body)) {
    module.params[0].is_writable = false;
    program = FindBounds(module);
    facts.extent = {10, 1, 1};
    facts.params = {{true, false, bytes, 32}, {false, false, 0, 32}, {false, false, 0, 32}};
  }
  bool Proves(const ir::WordRange& words) {
    facts.params[0].words = words;
    return ir::ProveByWords(program, facts);
  }

  ir::Module module;
  ir::BoundsProgram program;
  ir::BoundsFacts facts;
};

// b[b[x]] is proven exactly if the greatest word is a valid element, and the smallest word is not negative.
TEST(FindBoundsTest, IndicesFromMemory) {
  Reading gather(
      " %o: i32 = shl.i32 %x, %c2\n %k: i32 = load.i32 param(0) %o\n %p: i32 = shl.i32 %k, %c2\n"
      " %v: i32 = load.i32 param(0) %p\n",
      40);
  EXPECT_EQ(gather.program.accesses.size(), 1u);
  EXPECT_EQ(gather.program.by_words.size(), 1u);
  EXPECT_TRUE(gather.program.others.empty());
  EXPECT_TRUE(gather.program.is_complete);
  EXPECT_EQ(ir::FindWordParams(gather.program), std::vector<bool>{true});
  EXPECT_TRUE(gather.Proves({0, 9}));
  EXPECT_TRUE(gather.Proves({3, 3}));
  EXPECT_FALSE(gather.Proves({0, 10}));
  EXPECT_FALSE(gather.Proves({-1, 9}));
  EXPECT_FALSE(gather.Proves({}));
  EXPECT_TRUE(ir::ProveBounds(gather.program, gather.facts));
  gather.facts.params[0].is_writable = true;
  EXPECT_FALSE(gather.Proves({0, 9}));
}

// A negative index that a branch excludes, and one that no branch excludes.
TEST(FindBoundsTest, IndicesBehindABranch) {
  const std::string load = " %o: i32 = shl.i32 %x, %c2\n %k: i32 = load.i32 param(0) %o\n";
  const std::string used =
      " if g0 %g {\n %p: i32 = shl.i32 %k, %c2\n %v: i32 = load.i32 param(0) %p\n br g0 ()\n} else {\n"
      " br g0 ()\n}\n";
  Reading guarded(load + " %g: i32 = ge_s.i32 %k, %c0\n" + used, 40);
  EXPECT_TRUE(guarded.Proves({-1, 9}));
  EXPECT_FALSE(guarded.Proves({-1, 10}));
  Reading other(load + " %g: i32 = ne.i32 %k, %c3\n" + used, 40);
  EXPECT_FALSE(other.Proves({-1, 9}));
}

// Rows of sparse matrices: for k from b[x] to b[x + 1], b[b[k]].
TEST(FindBoundsTest, RowsFromMemory) {
  Reading rows(
      " %o: i32 = shl.i32 %x, %c2\n %first: i32 = load.i32 param(0) %o\n %last: i32 = load.i32 param(0) %o + 4\n"
      " %g: i32 = lt_s.i32 %first, %last\n if g0 %g {\n loop l (%k: i32 = %first) {\n"
      " %p: i32 = shl.i32 %k, %c2\n %c: i32 = load.i32 param(0) %p\n"
      " %q: i32 = shl.i32 %c, %c2\n %v: i32 = load.i32 param(0) %q\n"
      " %j: i32 = add.i32 %k, %c1\n %h: i32 = lt_s.i32 %j, %last\n if g1 %h {\n continue l (%j)\n} else {\n"
      " br g1 ()\n}\n br l ()\n}\n br g0 ()\n} else {\n br g0 ()\n}\n",
      44);
  EXPECT_EQ(rows.program.accesses.size(), 2u);
  EXPECT_EQ(rows.program.by_words.size(), 2u);
  EXPECT_TRUE(rows.Proves({0, 10}));
  EXPECT_FALSE(rows.Proves({0, 11}));
  EXPECT_FALSE(rows.Proves({-1, 10}));
}

std::string RowsInPairs(const std::string& behind_odd) {
  return " block b0 () {\n"
         " %o: i32 = shl.i32 %x, %c2\n %last: i32 = load.i32 param(0) %o + 4\n %first: i32 = load.i32 param(0) %o\n"
         " %none: i32 = le_s.i32 %last, %first\n if b1 %none {\n br b0 ()\n} else {\n br b1 ()\n}\n"
         " %second: i32 = add.i32 %first, %c1\n %third: i32 = add.i32 %first, %c2\n"
         " %k0: i32 = block b2 () {\n block b3 () {\n"
         " %count: i32 = sub.i32 %last, %first\n %odd: i32 = and.i32 %count, %c1\n"
         " if b4 %odd {\n br b3 ()\n} else {\n br b4 ()\n}\n br b2 (%first)\n}\n"
         " %p0: i32 = shl.i32 %first, %c2\n %v0: i32 = load.i32 param(0) %p0\n br b2 (" +
         behind_odd +
         ")\n}\n"
         " %one: i32 = eq.i32 %last, %second\n if b5 %one {\n br b0 ()\n} else {\n br b5 ()\n}\n"
         " %left: i32 = sub.i32 %last, %k0\n %begin: i32 = shl.i32 %k0, %c2\n"
         " loop l (%p: i32 = %begin, %d: i32 = %left) {\n"
         " %v1: i32 = load.i32 param(0) %p\n %v2: i32 = load.i32 param(0) %p + 4\n"
         " %q: i32 = add.i32 %p, %c8\n %e: i32 = sub.i32 %d, %c2\n"
         " if g %e {\n continue l (%q, %e)\n} else {\n br g ()\n}\n br l ()\n}\n"
         " br b0 ()\n}\n";
}

// The same rows as LLVM writes them: two iterations at a time, and one before them if their number is odd.
TEST(FindBoundsTest, RowsInPairs) {
  Reading rows(RowsInPairs("%second"), 44);
  EXPECT_EQ(rows.program.by_words.size(), 3u);
  EXPECT_TRUE(rows.Proves({0, 11}));
  EXPECT_FALSE(rows.Proves({0, 12}));
  EXPECT_FALSE(rows.Proves({-1, 11}));
}

// After an odd number of iterations the counter misses its end.
TEST(FindBoundsTest, PairsThatMissTheEnd) {
  Reading rows(RowsInPairs("%third"), 44);
  EXPECT_EQ(rows.program.by_words.size(), 3u);
  EXPECT_FALSE(rows.Proves({0, 9}));
}

// The previous iteration continued because of another word: this iteration's word may be less than the counter.
TEST(FindBoundsTest, WordsThatChangeInTheLoop) {
  Reading changing(
      " loop l (%k: i32 = %c0) {\n %o: i32 = shl.i32 %k, %c2\n %w: i32 = load.i32 param(0) %o\n"
      " %d: i32 = sub.i32 %w, %k\n %p: i32 = shl.i32 %d, %c2\n %v: i32 = load.i32 param(0) %p\n"
      " %j: i32 = add.i32 %k, %c1\n %h: i32 = lt_s.i32 %j, %w\n if g %h {\n continue l (%j)\n} else {\n"
      " br g ()\n}\n br l ()\n}\n",
      40);
  EXPECT_EQ(changing.program.by_words.size(), 2u);
  EXPECT_FALSE(changing.Proves({1, 9}));
}

// A load that may be at an unaligned offset, or is not a whole word, is not bounded by the range of the words.
TEST(FindBoundsTest, OtherLoadsAreNoWords) {
  const std::string use = " %p: i32 = shl.i32 %k, %c2\n %v: i32 = load.i32 param(0) %p\n";
  const char* const kLoads[] = {
      " %k: i32 = load.i32 param(0) %x\n",
      " %o: i32 = shl.i32 %x, %c2\n %k: i32 = load.i32 param(0) %o + 2\n",
      " %o: i32 = shl.i32 %x, %c1\n %k: i32 = load.i32 param(0) %o\n",
      " %o: i32 = shl.i32 %x, %c3\n %w: i64 = load.i64 param(0) %o\n %k: i32 = wrap.i64 %w\n",
      " %o: i32 = shl.i32 %x, %c2\n %k: i32 = atomic_load.i32 param(0) %o\n",
  };
  for (const char* load : kLoads) {
    Reading reading(load + use, 400);
    EXPECT_TRUE(reading.program.by_words.empty()) << load;
    EXPECT_EQ(reading.program.others.size(), 1u) << load;
    EXPECT_FALSE(reading.Proves({0, 9})) << load;
  }
  // Neither is a load from a buffer that the kernel writes.
  ir::Module writing = testing::BoundsKernel(" %o: i32 = shl.i32 %x, %c2\n %k: i32 = load.i32 param(0) %o\n" + use);
  EXPECT_TRUE(FindBounds(writing).by_words.empty());
}

// An access that depends on more values than a launch can analyse keeps its check, and the others their proof. Two
// dropped values are unrelated: their difference is not 0.
TEST(FindBoundsTest, TooManyValues) {
  const std::string last = "%noise" + std::to_string(2 * kBoundsAtomsMax - 1);
  const std::string one = " %p: i32 = xor.i32 " + last + ", %n\n", two = " %q: i32 = xor.i32 " + last + ", %m\n";
  const std::string difference = " %d: i32 = sub.i32 %p, %q\n %e: i32 = add.i32 %d, %c2\n store.i32 param(0) %e, %x\n";
  const ir::BoundsProgram program = FindBounds(testing::BoundsKernel(At("x") + kNoise + one + two + difference));
  EXPECT_EQ(program.accesses.size(), 1u);
  EXPECT_EQ(program.others.size(), 1u);
  EXPECT_TRUE(program.is_complete);
  EXPECT_TRUE(Proven(program, {{10, 1, 1}, 40, 0, 0}));
  EXPECT_FALSE(Proven(program, {{10, 1, 1}, 36, 0, 0}));
}

// A loop for whose trip no atom is left bounds nothing, and a branch on a dropped value adds no condition.
TEST(FindBoundsTest, LoopsAndBranchesOnTooManyValues) {
  const std::string last = "%noise" + std::to_string(2 * kBoundsAtomsMax - 1);
  const std::string used = " %o0: i32 = and.i32 " + last + ", %c4\n store.i32 param(0) %o0, %x\n";
  const std::string loop = " loop l (%i: i32 = %c0) {\n" + At("i") +
                           " %j: i32 = add.i32 %i, %c1\n %g: i32 = lt_u.i32 %j, %n\n if g0 %g {\n continue l (%j)\n} "
                           "else {\n br g0 ()\n}\n br l ()\n}\n";
  const ir::BoundsProgram in_loop = FindBounds(testing::BoundsKernel(kNoise + used + loop));
  EXPECT_TRUE(in_loop.loops.empty());
  EXPECT_TRUE(in_loop.accesses.empty());
  EXPECT_EQ(in_loop.others.size(), 2u);
  const std::string branch =
      " %g: i32 = ge_u.i32 %x, " + last + "\n if g0 %g {\n return ()\n} else {\n br g0 ()\n}\n" + At("x");
  const ir::BoundsProgram behind =
      FindBounds(testing::BoundsKernel(" %sum: i32 = add.i32 %x, %n\n" + kNoise + used + branch));
  EXPECT_FALSE(Proven(behind, {{10, 1, 1}, 36, 4, 4}));
}

// In a large kernel regions without accesses are skipped.
TEST(FindBoundsTest, QuietRegions) {
  const std::string loop =
      " loop l (%i: i32 = %c0) {\n" + testing::NoisyValues(2 * kBoundsAtomsMax, "inner") +
      " %j: i32 = add.i32 %i, %c1\n %g: i32 = lt_u.i32 %j, %n\n if g0 %g {\n continue l (%j)\n} else {\n"
      " br g0 ()\n}\n br l ()\n}\n";
  const ir::BoundsProgram program = FindBounds(testing::BoundsKernel(loop + At("x")));
  EXPECT_TRUE(program.is_complete);
  EXPECT_TRUE(program.loops.empty());
  EXPECT_TRUE(Proven(program, {{10, 1, 1}, 40, 3, 0}));
  EXPECT_FALSE(Proven(program, {{10, 1, 1}, 36, 3, 0}));
  // A jump that leaves an enclosing construct makes the region relevant.
  const std::string early =
      " if g0 %m {\n if h0 %n {\n return ()\n} else {\n br h0 ()\n}\n br g0 ()\n} else {\n br g0 ()\n}\n";
  EXPECT_TRUE(Proven(FindBounds(testing::BoundsKernel(kNoise + early + At("x"))), {{10, 1, 1}, 40, 3, 1}));
}

// An access that depends on memory keeps its check without affecting other accesses; under a condition it is proven.
TEST(FindBoundsTest, HopelessAccessesAreLeftOut) {
  const std::string from_memory = " %k: i32 = load.i32 param(0) %c0\n";
  struct Case {
    const char* name;
    std::string body;
    size_t accesses;
  };
  const Case kCases[] = {
      {"Index", from_memory + At("k"), 1},
      {"Masked", from_memory + " %i: i32 = and.i32 %k, %n\n" + At("i"), 2},
      {"Guarded",
       from_memory + " %g: i32 = lt_u.i32 %k, %n\n if g0 %g {\n" + At("k") + " br g0 ()\n} else {\n br g0 ()\n}\n", 2},
      {"GuardedByMemory",
       from_memory + " %q: i32 = load.i32 param(0) %c4\n %g: i32 = lt_u.i32 %k, %q\n if g0 %g {\n" + At("k") +
           " br g0 ()\n} else {\n br g0 ()\n}\n",
       2},
      {"LoopUpToMemory",
       from_memory + " loop l (%i: i32 = %c0) {\n" + At("i") +
           " %j: i32 = add.i32 %i, %c1\n %g: i32 = lt_u.i32 %j, %k\n if g0 %g {\n continue l (%j)\n} else {\n"
           " br g0 ()\n}\n br l ()\n}\n",
       1},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ir::BoundsProgram program = FindBounds(testing::BoundsKernel(c.body));
    EXPECT_EQ(program.accesses.size(), c.accesses);
    EXPECT_TRUE(Proven(program, {{1, 1, 1}, 40, 9, 0}));
  }
}

// Accesses to group memory are proven within the allocated bytes, as long as every instance has made the same
// requests.
TEST(FindBoundsTest, GroupMemory) {
  const std::string start =
      " %s: i32 = const.i32 40\n %g: i32 = local_alloc %s\n %h: i32 = local_alloc %s\n %o: i32 = shl.i32 %x, %c2\n";
  struct Case {
    const char* name;
    std::string body;
    uint64_t fits;  // The largest extent that is proven; 0: not tested.
  };
  const Case kCases[] = {
      {"First", start + " %p: i32 = add.i32 %g, %o\n store.i32 group %p, %x\n", 24},
      {"Second", start + " %p: i32 = add.i32 %h, %o\n store.i32 group %p, %x\n", 12},
      {"Immediate", start + " %p: i32 = add.i32 %h, %o\n store.i32 group %p + 8, %x\n", 10},
      {"Flat", start + " %p: i32 = add.i32 %h, %o\n store.i32 flat %p, %x\n", 0},
      {"UnknownSize",
       " %g: i32 = local_alloc %n\n %o: i32 = shl.i32 %x, %c2\n %p: i32 = add.i32 %g, %o\n store.i32 group %p, %x\n",
       0},
      {"UnderCondition",
       " if i0 %n {\n %e: i32 = local_alloc %c8\n br i0 ()\n} else {\n br i0 ()\n}\n" + start +
           " %p: i32 = add.i32 %g, %o\n store.i32 group %p, %x\n",
       0},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ir::BoundsProgram program = FindBounds(testing::BoundsKernel(c.body));
    ASSERT_EQ(program.accesses.size(), c.fits == 0 ? 0 : 1);
    if (c.fits != 0) {
      EXPECT_TRUE(Proven(program, {{c.fits, 1, 1}, 0, 9, 0}));
      EXPECT_FALSE(Proven(program, {{c.fits + 1, 1, 1}, 0, 9, 0}));
    }
  }
}

// Proofs over nested merges end after a fixed time, instead of doubling with each merge.
TEST(FindBoundsTest, NestedMergesGiveUp) {
  std::string body = " %v0: i32 = add.i32 %x, %y\n";
  for (int i = 1; i <= 60; ++i) {
    const std::string last = "%v" + std::to_string(i - 1), name = "%v" + std::to_string(i);
    body += " %g" + std::to_string(i) + ": i32 = lt_u.i32 " + last + ", %n\n " + name + ": i32 = select.i32 %g" +
            std::to_string(i) + ", " + last + ", %m\n";
  }
  const ir::BoundsProgram program = FindBounds(testing::BoundsKernel(body + At("v60")));
  ASSERT_EQ(program.accesses.size(), 1u);
  EXPECT_FALSE(Proven(program, {{4, 4, 1}, 4000, 3, 2}));
}

// A kernel as a compiler emitted it, and the facts from its comments.
struct Golden {
  ir::Module module;
  ir::BoundsFacts facts;
  std::vector<uint32_t> exact;  // Parameters whose buffers have no spare byte.
  size_t accesses = 0;
};

Golden ReadGolden(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  StatusOr<ir::Module> module = ir::ParseModule(text.str());
  EXPECT_TRUE(module.ok()) << module.status();
  Golden golden{module.ok() ? *std::move(module) : ir::Module(), {}, {}, 0};
  std::istringstream lines(text.str());
  for (std::string line; std::getline(lines, line) && line.substr(0, 3) == ";; ";) {
    std::istringstream words(line.substr(3));
    std::string word;
    words >> word;
    if (word == "launch") {
      words >> golden.facts.extent[0] >> golden.facts.extent[1] >> golden.facts.extent[2] >> word;
      words >> golden.facts.group[0] >> golden.facts.group[1] >> golden.facts.group[2] >> word;
      for (const ir::KernelParam& param : golden.module.params) {
        uint64_t value = 0;
        words >> value;
        golden.facts.params.push_back(
            {param.is_buffer, param.is_writable, value, static_cast<uint8_t>(8 * ir::Bytes(param.type))});
      }
      EXPECT_FALSE(words.fail());
    } else if (word == "exact") {
      for (uint32_t param = 0; words >> param;) {
        golden.exact.push_back(param);
      }
    } else if (word == "accesses") {
      words >> golden.accesses;
    }
  }
  return golden;
}

// Kernels of the benchmarks: all accesses except those indexed from memory are proven, and with 4 bytes less none of
// those to that buffer.
TEST(FindBoundsTest, CompiledKernels) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HPVMD_SOURCE_DIR "/tests/golden/bounds")) {
    SCOPED_TRACE(entry.path());
    ++count;
    Golden golden = ReadGolden(entry.path());
    const ir::BoundsProgram program = FindBounds(golden.module);
    EXPECT_EQ(program.accesses.size(), golden.accesses);
    EXPECT_GT(golden.accesses, 0u);
    EXPECT_TRUE(ir::ProveBounds(program, golden.facts));
    for (uint32_t param : golden.exact) {
      SCOPED_TRACE(param);
      golden.facts.params[param].value -= 4;
      EXPECT_FALSE(ir::ProveBounds(program, golden.facts));
      golden.facts.params[param].value += 4;
    }
  }
  EXPECT_GE(count, 10u);
}

// Proven accesses do not leave their buffers: the interpreter runs the whole launch.
TEST(FindBoundsTest, BruteForce) {
  int proven = 0, with_loops = 0, runs = 0;
  const char* seeds = std::getenv("HPVMD_BOUNDS_SEEDS");
  const uint32_t count = seeds != nullptr ? static_cast<uint32_t>(std::atoi(seeds)) : 4000;
  for (uint32_t seed = 0; seed < count; ++seed) {
    testing::KernelGenerator generator(seed);
    const std::string body = generator.Body();
    ir::Module module = testing::BoundsKernel(body);
    ir::Function& function = module.function(module.entry);
    for (size_t i = 0; i < function.ops.size(); ++i) {
      function.ops[i].source = static_cast<uint32_t>(i + 1);  // So that a trap names its operation.
    }
    const ir::BoundsProgram program = FindBounds(module);
    const auto is_checked = [&](uint32_t source) {
      return std::none_of(program.accesses.begin(), program.accesses.end(),
                          [&](const ir::BoundsAccess& access) { return access.op.index + 1 == source; });
    };
    if (program.accesses.empty()) {
      continue;
    }
    const StatusOr<ir::Interpreter> interpreter = ir::Interpreter::Create(module);
    ASSERT_TRUE(interpreter.ok());
    for (int i = 0; i < 6; ++i) {
      const testing::KernelLaunch facts = generator.Facts();
      ++runs;
      if (!Proven(program, facts)) {
        continue;
      }
      ++proven;
      with_loops += program.loops.empty() ? 0 : 1;
      std::vector<uint64_t> data(facts.bytes / 8 + 1);
      std::generate(data.begin(), data.end(), [&] { return generator.Word(); });
      ir::Launch launch;
      launch.extent = facts.extent;
      launch.arguments = {
          {reinterpret_cast<uint8_t*>(data.data()), facts.bytes, 0}, {nullptr, 0, facts.n}, {nullptr, 0, facts.m}};
      const StatusOr<ir::TrapReport> report = interpreter->Run(launch, {.steps_max = 20'000});
      ASSERT_TRUE(report.ok()) << report.status();
      ASSERT_TRUE(report->code == ir::TrapCode::kNone || report->code == ir::TrapCode::kStopped ||
                  is_checked(report->source))
          << "seed " << seed << " launch " << i << ": " << ToString(*report, module) << ", " << facts.bytes
          << " bytes, n " << facts.n << ", m " << facts.m << ", extent " << facts.extent[0] << " x " << facts.extent[1]
          << "\n"
          << ir::Print(module);
    }
  }
  std::printf("%d of %d launches proven, %d of them of kernels with loops\n", proven, runs, with_loops);
  EXPECT_GT(proven, runs / 20);  // Otherwise nothing is tested.
  EXPECT_GT(with_loops, proven / 10);
}

}  // namespace
}  // namespace hpvm::pass
