// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/tile/guard_loops.h"

#include <gtest/gtest.h>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

// Returns a kernel with the buffers in %a, which has words, in %x, which has floats, and inout %b, and the numbers %n
// and %m; %o is 4 times the instance's id.
ir::Module Kernel(const std::string& body) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nuses separate_buffers\nparam buffer in \"a\"\nparam buffer in \"x\"\n"
      "param buffer inout \"b\"\nparam i32 \"n\"\nparam i32 \"m\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %x: i32, %b: i32, %n: i32, %m: i32) -> () {\n%zero: i32 = const.i32 0\n"
      "%one: i32 = const.i32 1\n%two: i32 = const.i32 2\n%four: i32 = const.i32 4\n%fz: f32 = const.f32 0x0\n"
      "%id: i32 = instance_id.i32 %zero\n%o: i32 = shl.i32 %id, %two\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  return *module;
}

// The smallest source of operations in the kernels' loops.
constexpr uint32_t kInLoops = 10;

std::optional<CoarseModule> Guard(const ir::Module& module) {
  std::optional<CoarseModule> guarded =
      GuardLoops(module, std::vector<bool>(module.function(module.entry).ops.size(), true), nullptr);
  if (guarded) {
    EXPECT_TRUE(ir::Verify(guarded->module).empty())
        << ToString(ir::Verify(guarded->module)) << ir::Print(guarded->module);
  }
  return guarded;
}

struct End {
  ir::TrapReport trap;
  std::vector<uint32_t> memory;
};
End Run(const ir::Module& module, uint32_t words, std::vector<uint32_t> a, uint32_t n, uint32_t m) {
  std::vector<uint32_t> x(words), b(8, 7);
  for (uint32_t i = 0; i < words; ++i) {
    x[i] = 0x3f800000 + (i << 18);
  }
  ir::Launch launch;
  launch.extent = {4, 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(a.data()), 4 * a.size(), 0},
                      {reinterpret_cast<uint8_t*>(x.data()), 4 * x.size(), 0},
                      {reinterpret_cast<uint8_t*>(b.data()), 4 * b.size(), 0},
                      {nullptr, 0, n},
                      {nullptr, 0, m}};
  const StatusOr<ir::TrapReport> trap = ir::Interpret(module, launch);
  EXPECT_TRUE(trap.ok()) << trap.status();
  return {*trap, b};
}

// Expects the same memory and the same trap for all numbers; %a has `a`, %x 1 to 40 words.
void ExpectSame(const ir::Module& module, const std::vector<uint32_t>& a) {
  const std::optional<CoarseModule> guarded = Guard(module);
  ASSERT_TRUE(guarded);
  for (const uint32_t words : {1u, 5u, 16u, 40u}) {
    for (const uint32_t n : {0u, 1u, 2u, 3u, 7u, 15u, 0x7fffffffu, 0xffffffffu, 0xfffffffeu}) {
      for (const uint32_t m : {0u, 1u, 2u, 6u, 8u, 9u, 17u, 39u, 0xfffffff0u}) {
        const End before = Run(module, words, a, n, m), after = Run(guarded->module, words, a, n, m);
        const std::string place = std::to_string(words) + " " + std::to_string(n) + " " + std::to_string(m);
        EXPECT_EQ(before.trap.code, after.trap.code) << place;
        EXPECT_EQ(before.trap.instance, after.trap.instance) << place;
        EXPECT_EQ(before.trap.address, after.trap.address) << place;
        EXPECT_EQ(before.trap.source, after.trap.source) << place;
        EXPECT_EQ(before.memory, after.memory) << place;
      }
    }
  }
}

// Returns true if the launch runs first copies only: accesses of other copies always trap in the modified module.
bool RunsFirstCopy(CoarseModule guarded, uint32_t words, const std::vector<uint32_t>& a, uint32_t n, uint32_t m) {
  ir::Function& f = guarded.module.function(guarded.module.entry);
  for (ir::Op& op : f.ops) {
    if (op.code == ir::Opcode::kLoad && !op.is_inside && op.source >= kInLoops) {
      op.imm = 1 << 30;
    }
  }
  return Run(guarded.module, words, a, n, m).trap.code == ir::TrapCode::kNone;
}

size_t CountInside(const ir::Module& module, ir::Opcode code) {
  const ir::Function& f = module.function(module.entry);
  size_t count = 0;
  ir::ForEachOp(f, [&](ir::OpId id) { count += f.op(id).is_inside && f.op(id).code == code ? 1 : 0; });
  return count;
}

// sum += x[i] from %n on, with `next` that defines the next %j and the condition %c, at most 64 times.
std::string Sum(const std::string& next) {
  return "%s: f32 = loop b0 (%i: i32 = %n, %sum: f32 = %fz, %left: i32 = %zero) @10 {\n%p: i32 = shl.i32 %i, %two\n"
         "%v: f32 = load.f32 param(1) %p @11\n%more: f32 = fadd.f32 %sum, %v\n" +
         next + "\nif b1 %c {\ncontinue b0 (%j, %more, %i)\n} else {\nbr b1 ()\n}\nbr b0 (%more)\n}\n" +
         "store.f32 param(2) %o, %s @12";
}

TEST(GuardLoops, EveryWayToCount) {
  const std::string up = "%j: i32 = add.i32 %i, %one\n", by_two = "%j: i32 = add.i32 %i, %two\n";
  const std::string down = "%j: i32 = sub.i32 %i, %one\n", by_four = "%j: i32 = sub.i32 %i, %four\n";
  struct Case {
    std::string next;
    uint32_t n, m;  // A launch that stays inside 16 words.
  };
  for (const auto& [next, n, m] : std::vector<Case>{{up + "%c: i32 = lt_s.i32 %j, %m", 2, 16},
                                                    {up + "%c: i32 = lt_u.i32 %i, %m", 2, 15},
                                                    {up + "%c: i32 = le_u.i32 %j, %m", 2, 15},
                                                    {up + "%c: i32 = le_s.i32 %i, %m", 2, 14},
                                                    {by_two + "%c: i32 = lt_s.i32 %i, %m", 1, 15},
                                                    {by_two + "%c: i32 = le_u.i32 %j, %m", 1, 15},
                                                    {down + "%c: i32 = gt_s.i32 %j, %m", 15, 0xffffffff},
                                                    {down + "%c: i32 = ge_u.i32 %i, %m", 15, 1},
                                                    {down + "%c: i32 = ge_s.i32 %j, %zero", 15, 0},
                                                    {by_four + "%c: i32 = gt_u.i32 %i, %m", 15, 6},
                                                    {down + "%c: i32 = ne.i32 %j, %m", 15, 0xffffffff},
                                                    {up + "%c: i32 = ne.i32 %m, %i", 2, 15},
                                                    {by_two + "%c: i32 = ne.i32 %j, %m", 2, 16},
                                                    {by_four + "%c: i32 = sub.i32 %i, %four", 12, 0}}) {
    SCOPED_TRACE(next);
    const ir::Module module = Kernel(Sum(next));
    ExpectSame(module, {0});
    EXPECT_EQ(CountInside(Guard(module)->module, ir::Opcode::kLoad), 1u);
    EXPECT_TRUE(RunsFirstCopy(*Guard(module), 16, {0}, n, m));
    EXPECT_FALSE(RunsFirstCopy(*Guard(module), 8, {0}, n, m));
  }
}

// Rows of a sparse matrix: from a[id] to a[id + 1], x[a[k]].
TEST(GuardLoops, PlacesFromMemoryAreLookedAtAfterwards) {
  const ir::Module module = Kernel(
      "%begin: i32 = load.i32 param(0) %o @1\n%end: i32 = load.i32 param(0) %o + 4 @2\n"
      "%s: f32 = loop b0 (%k: i32 = %begin, %sum: f32 = %fz) {\n%p: i32 = shl.i32 %k, %two\n"
      "%column: i32 = load.i32 param(0) %p @13\n%q: i32 = shl.i32 %column, %two\n%v: f32 = load.f32 param(1) %q @14\n"
      "%more: f32 = fadd.f32 %sum, %v\n%j: i32 = add.i32 %k, %one\n%c: i32 = lt_s.i32 %j, %end\n"
      "if b1 %c {\ncontinue b0 (%j, %more)\n} else {\nbr b1 ()\n}\nbr b0 (%more)\n}\n"
      "store.f32 param(2) %o, %s @5");
  const std::optional<CoarseModule> guarded = Guard(module);
  ASSERT_TRUE(guarded);
  EXPECT_EQ(CountInside(guarded->module, ir::Opcode::kLoad), 2u);
  ExpectSame(module, {5, 7, 9, 9, 12, 3, 0, 4, 2, 1, 0, 39, 3});
  ExpectSame(module, {5, 7, 9, 9, 12, 3, 0, 4, 16, 1, 0, 0xffffffff, 3});
  ExpectSame(module, {5, 7, 9, 900, 12, 3, 0, 4, 2, 1, 0, 0, 3});
  EXPECT_TRUE(RunsFirstCopy(*guarded, 5, {5, 7, 9, 11, 12, 3, 0, 4, 2, 1, 0, 0, 3}, 0, 0));
  EXPECT_FALSE(RunsFirstCopy(*guarded, 4, {5, 7, 9, 11, 12, 3, 0, 4, 2, 1, 0, 0, 3}, 0, 0));
}

// Four words of a record, of which the last is read in some iterations only.
ir::Module Records(const std::string& begin) {
  return Kernel("%s: f32 = loop b0 (%k: i32 = %n, %sum: f32 = %fz) {\n%sixteens: i32 = shl.i32 %k, %four\n" + begin +
                "%v0: f32 = load.f32 param(1) %p @11\n%v1: f32 = load.f32 param(1) %p + 4 @12\n"
                "%p8: i32 = add.i32 %four, %p\n%v2: f32 = load.f32 param(1) %p8 + 4 @13\n%t: f32 = fadd.f32 %v0, %v1\n"
                "%u: f32 = fadd.f32 %t, %v2\n%odd: i32 = and.i32 %k, %one\n"
                "%w: f32 = if b2 %odd {\n%p12: i32 = add.i32 %p8, %four\n%v3: f32 = load.f32 param(1) %p12 + 4 @14\n"
                "br b2 (%v3)\n} else {\nbr b2 (%u)\n}\n"
                "%more: f32 = fadd.f32 %sum, %w\n%j: i32 = add.i32 %k, %one\n%c: i32 = lt_s.i32 %j, %m\n"
                "if b1 %c {\ncontinue b0 (%j, %more)\n} else {\nbr b1 ()\n}\nbr b0 (%more)\n}\n"
                "store.f32 param(2) %o, %s @5");
}
TEST(GuardLoops, FourWordsAreOneLoad) {
  const ir::Module module = Records("%p: i32 = add.i32 %sixteens, %zero\n");
  const std::optional<CoarseModule> guarded = Guard(module);
  ASSERT_TRUE(guarded);
  EXPECT_TRUE(guarded->needs_alignment);
  EXPECT_EQ(CountInside(guarded->module, ir::Opcode::kLoad128), 1u);
  EXPECT_EQ(CountInside(guarded->module, ir::Opcode::kLoad), 0u);
  ExpectSame(module, {0});
  EXPECT_TRUE(RunsFirstCopy(*guarded, 16, {0}, 1, 4));
  EXPECT_FALSE(RunsFirstCopy(*guarded, 16, {0}, 1, 5));
  const ir::Module apart = Records("%p: i32 = add.i32 %sixteens, %four\n");
  EXPECT_EQ(CountInside(Guard(apart)->module, ir::Opcode::kLoad128), 0u);
  ExpectSame(apart, {0});
}

// A division could trap on a value read in place of a missed one, and a store would be visible.
TEST(GuardLoops, WhatIsSeenKeepsItsChecks) {
  const auto loop = [](const std::string& use) {
    return Kernel(
        "%s: i32 = loop b0 (%k: i32 = %n, %sum: i32 = %zero) {\n%p: i32 = shl.i32 %k, %two\n"
        "%column: i32 = load.i32 param(0) %p @13\n%q: i32 = shl.i32 %column, %two\n%v: i32 = load.i32 param(1) %q "
        "@14\n" +
        use +
        "%more: i32 = add.i32 %sum, %v\n%j: i32 = add.i32 %k, %one\n%c: i32 = lt_s.i32 %j, %m\n"
        "if b1 %c {\ncontinue b0 (%j, %more)\n} else {\nbr b1 ()\n}\nbr b0 (%more)\n}\n"
        "store.i32 param(2) %o, %s @5");
  };
  const std::vector<uint32_t> a = {3, 2, 1, 9, 4, 40, 0};
  for (const char* use : {"%d: i32 = div_s.i32 %n, %v @6\n", "store.i32 param(2) %o + 4, %v @6\n"}) {
    const std::optional<CoarseModule> guarded = Guard(loop(use));
    ASSERT_TRUE(guarded);
    EXPECT_EQ(CountInside(guarded->module, ir::Opcode::kLoad), 1u) << use;  // Only a[k].
    ExpectSame(loop(use), a);
  }
  EXPECT_EQ(CountInside(Guard(loop(""))->module, ir::Opcode::kLoad), 2u);
  ExpectSame(loop(""), a);
}

TEST(GuardLoops, LeavesAlone) {
  // The number of iterations depends on the loop's values; no access is unproven; the loop waits.
  EXPECT_FALSE(
      Guard(Kernel(Sum("%j: i32 = add.i32 %i, %one\n%w: i32 = reinterpret.f32 %v\n%c: i32 = lt_s.i32 %j, %w"))));
  const ir::Module plain = Kernel(Sum("%j: i32 = add.i32 %i, %one\n%c: i32 = lt_s.i32 %j, %m"));
  EXPECT_FALSE(GuardLoops(plain, std::vector<bool>(plain.function(plain.entry).ops.size()), nullptr));
}

}  // namespace
}  // namespace hpvm::pass
