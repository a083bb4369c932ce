// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/tile/loads_ahead.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

// Returns a kernel of the buffers "a", which loops read, and "b", the numbers %n and %m, and `body`.
ir::Module Kernel(const std::string& body) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nuses separate_buffers\nparam buffer inout \"a\"\nparam buffer inout \"b\"\nparam i32 \"n\"\n"
      "param i32 \"m\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %b: i32, %n: i32, %m: i32) -> () {\n%zero: i32 = const.i32 0\n"
      "%one: i32 = const.i32 1\n%less: i32 = const.i32 0xffffffff\n%four: i32 = const.i32 4\n"
      "%seven: i32 = const.i32 7\n%mask: i32 = const.i32 0xfc\n" +
      body + "\nstore.i32 param(1) %zero, %sum\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  return *module;
}

// Loads %x, i32, from the first 256 bytes of "a", at %i.
constexpr char kLoad[] = "%w: i32 = and.i32 %i, %mask\n%x: i32 = load.i32 param(0) %w\n";

// Sums the values %x that `body` computes, over %i from `first` on, by a product that depends on their order, and
// stores the sum: `step` is the name of a number, `test` a comparison, and `bound` the name of its right operand.
std::string Loop(const std::string& body, const std::string& first, const std::string& step, const std::string& test,
                 const std::string& bound) {
  return "%sum: i32 = loop b0 (%i: i32 = " + first + ", %s: i32 = %zero) {\n" + body +
         "%u: i32 = mul.i32 %s, %seven\n%t: i32 = add.i32 %u, %x\n%j: i32 = add.i32 %i, " + step +
         "\n%c: i32 = " + test + ".i32 %j, " + bound +
         "\nif b1 %c {\ncontinue b0 (%j, %t)\n} else {\nbr b1 ()\n}\nbr b0 (%t)\n}";
}
// The same, in a loop that tests at its beginning.
std::string Early(const std::string& body, const std::string& test) {
  return "%sum: i32 = loop b0 (%i: i32 = %zero, %s: i32 = %one) {\n%k: i32 = block b2 () {\n%c: i32 = " + test +
         ".i32 %i, %n\nif b1 %c {\nbr b2 (%seven)\n} else {\nbr b1 ()\n}\nbr b0 (%s)\n}\n" + body +
         "%u: i32 = mul.i32 %s, %k\n%t: i32 = add.i32 %u, %x\n%j: i32 = add.i32 %i, %one\ncontinue b0 (%j, %t)\n}";
}

std::optional<CoarseModule> Ahead(const ir::Module& module, bool is_free = true) {
  std::optional<CoarseModule> ahead =
      LoadAhead(module, std::vector<bool>(module.function(module.entry).ops.size(), is_free), nullptr);
  if (ahead) {
    EXPECT_TRUE(ir::Verify(ahead->module).empty()) << ToString(ir::Verify(ahead->module)) << ir::Print(ahead->module);
  }
  return ahead;
}

// Returns the number of iterations that the kernel's first loop runs together.
uint32_t Together(const std::string& body, bool is_free = true) {
  const ir::Module module = Kernel(Loop(body, "%zero", "%four", "lt_u", "%n"));
  const std::optional<CoarseModule> ahead = Ahead(module, is_free);
  const auto sums = [](const ir::Module& of) {
    uint32_t count = 0;
    ir::ForEachOp(of.function(of.entry),
                  [&](ir::OpId id) { count += of.function(of.entry).op(id).code == ir::Opcode::kMul ? 1 : 0; });
    return count;
  };
  return ahead ? sums(ahead->module) / sums(module) - 1 : 1;
}

std::string Loads(int count) {
  std::string body = "%x0: i32 = load.i32 param(0) %i\n";
  for (int i = 1; i < count; ++i) {
    const std::string now = std::to_string(i), before = std::to_string(i - 1);
    body += "%l" + now + ": i32 = load.i32 param(0) %i + " + std::to_string(4 * i) + "\n%x" + now +
            ": i32 = add.i32 %x" + before + ", %l" + now + "\n";
  }
  return body + "%x: i32 = add.i32 %x" + std::to_string(count - 1) + ", %four\n";
}

TEST(LoadsAheadTest, AsManyAsLoadsAndOperationsAllow) {
  EXPECT_EQ(Together(Loads(1)), 8u);
  EXPECT_EQ(Together(Loads(2)), 8u);
  EXPECT_EQ(Together(Loads(3)), 4u);
  EXPECT_EQ(Together(Loads(4)), 4u);
  EXPECT_EQ(Together(Loads(5)), 2u);
  EXPECT_EQ(Together(Loads(8)), 2u);
  EXPECT_EQ(Together(Loads(9)), 1u);
  std::string long_body = Loads(1);
  for (int i = 0; i < 60; ++i) {
    long_body += "%y" + std::to_string(i) + ": i32 = xor.i32 %x, %four\n";
  }
  EXPECT_EQ(Together(long_body), 2u);
}

TEST(LoadsAheadTest, OthersStay) {
  EXPECT_EQ(Together("%x: i32 = xor.i32 %i, %i\n"), 1u);  // Nothing to wait for.
  EXPECT_EQ(Together(Loads(1), /*is_free=*/false), 1u);
  EXPECT_EQ(Together(Loads(1) + "if b7 %x {\nbr b0 (%s)\n} else {\nbr b7 ()\n}\n"), 1u);  // It may end early.
  EXPECT_EQ(Together(Loads(1) + "block b8 () {\nif b7 %x {\nbr b8 ()\n} else {\nbr b7 ()\n}\nbr b8 ()\n}\n"), 8u);
  EXPECT_EQ(Together("%x: i32 = atomic_add.i32 param(0) %i, %four\n"), 1u);
  EXPECT_EQ(Together(Loads(1) + "store.i32 param(1) %i, %x\n"), 1u);
  EXPECT_EQ(Together(Loads(1) + "%d: i32 = div_s.i32 %x, %i\n"), 1u);  // It may trap.
  EXPECT_EQ(Together("%x: i32 = loop b5 (%k: i32 = %zero) {\n%y: i32 = load.i32 param(0) %k\nbr b5 (%y)\n}\n"), 1u);
}

// The remainder of a previously unrolled loop has fewer iterations than would run together.
TEST(LoadsAheadTest, ShortLoopsStay) {
  const std::string three = "%three: i32 = const.i32 3\n%r: i32 = and.i32 %n, %three\n";
  EXPECT_FALSE(Ahead(Kernel(three + Loop(kLoad, "%r", "%less", "ne", "%zero"))));
  EXPECT_TRUE(Ahead(Kernel(Loop(kLoad, "%n", "%less", "ne", "%zero"))));
}

struct End {
  ir::TrapReport trap;
  uint32_t sum;
};
End Run(const ir::Module& module, uint32_t n, uint32_t m) {
  std::vector<uint32_t> a(64), b(1);
  for (uint32_t i = 0; i < a.size(); ++i) {
    a[i] = 0x9e3779b9 * (i + 1);
  }
  ir::Launch launch;
  launch.extent = {1, 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(a.data()), 4 * a.size(), 0},
                      {reinterpret_cast<uint8_t*>(b.data()), 4 * b.size(), 0},
                      {nullptr, 0, n},
                      {nullptr, 0, m}};
  const StatusOr<ir::TrapReport> trap = ir::Interpret(module, launch, {.steps_max = 10'000});
  EXPECT_TRUE(trap.ok()) << trap.status();
  return {*trap, b[0]};
}
void ExpectSame(const std::string& body, uint32_t n, uint32_t m) {
  const ir::Module module = Kernel(body);
  const std::optional<CoarseModule> ahead = Ahead(module);
  ASSERT_TRUE(ahead) << body;
  const End before = Run(module, n, m), after = Run(ahead->module, n, m);
  EXPECT_EQ(before.trap.code, after.trap.code);
  EXPECT_EQ(before.sum, after.sum) << body << "\n" << n << " " << m;
}

// Each comparison, up and down, with bounds at the ends of the type and around multiples of the unrolled iterations,
// except loops that wrap around all numbers.
TEST(LoadsAheadTest, SumsAreTheSameToTheLastIteration) {
  for (uint32_t n = 0; n < 40; ++n) {
    for (const char* test : {"lt_s", "le_s", "lt_u", "le_u"}) {
      ExpectSame(Loop(kLoad, "%zero", "%one", test, "%n"), n, 0);
      ExpectSame(Loop(kLoad, "%zero", "%four", test, "%n"), 3 * n, 0);
      ExpectSame(Loop(kLoad, "%m", "%one", test, "%n"), n + 0x80000000, 0x80000000);
      ExpectSame(Loop(kLoad, "%m", "%one", test, "%n"), n, 0xffffffff);
    }
    for (const char* test : {"gt_s", "ge_s", "gt_u"}) {
      ExpectSame(Loop(kLoad, "%n", "%less", test, "%zero"), n + 1, 0);
      ExpectSame(Loop(kLoad, "%m", "%less", test, "%n"), 0x80000003, 0x80000003 + n);
    }
    ExpectSame(Loop(kLoad, "%zero", "%one", "ne", "%n"), n + 1, 0);
    ExpectSame(Loop(kLoad, "%n", "%less", "ne", "%zero"), n + 1, 0);
    ExpectSame(Loop(kLoad, "%m", "%four", "ne", "%n"), 4 * n, 0xffffffe0);
    ExpectSame(Early(kLoad, "lt_s"), n, 0);
    ExpectSame(Early(kLoad, "ne"), n, 0);
  }
  for (const uint32_t far : {0x7fffffffu, 0x80000000u, 0xfffffff0u, 0xffffffffu}) {
    for (uint32_t back = 1; back < 20; ++back) {
      ExpectSame(Loop(kLoad, "%m", "%one", "lt_s", "%n"), far, far - back);
      ExpectSame(Loop(kLoad, "%m", "%one", "lt_u", "%n"), far, far - back);
      ExpectSame(Loop(kLoad, "%m", "%less", "gt_s", "%n"), far - back, far);
      ExpectSame(Loop(kLoad, "%m", "%less", "gt_u", "%n"), far - back, far);
    }
  }
  // Bounds near which a step too many wraps around.
  for (uint32_t n = 0; n < 20; ++n) {
    ExpectSame(Loop(kLoad, "%m", "%one", "lt_s", "%n"), 0x80000000 + n, 0x80000000);
    ExpectSame(Loop(kLoad, "%m", "%less", "gt_s", "%n"), 0x7fffffff - n, 0x7fffffff);
    ExpectSame(Loop(kLoad, "%m", "%less", "gt_u", "%n"), 0xffffffff - n, 0xffffffff);
  }
}

// Offsets that grow alike, by a step known only at run time, become one offset and distances from it, unless a leader
// is less aligned.
TEST(LoadsAheadTest, OffsetsFollowOne) {
  const auto kernel = [](const std::string& leader, const std::string& follower) {
    return "%two: i32 = const.i32 2\n%step: i32 = shl.i32 %m, %four\n%p0: i32 = shl.i32 %n, " + leader +
           "\n%q0: i32 = shl.i32 %m, " + follower +
           "\n%sum: i32 = loop b0 (%i: i32 = %zero, %s: i32 = %one, %p: i32 = %p0, %q: i32 = %q0, %r: i32 = %n) {\n"
           "%pw: i32 = and.i32 %p, %mask\n%qw: i32 = and.i32 %q, %mask\n%rw: i32 = and.i32 %r, %mask\n"
           "%x: i32 = load.i32 param(0) %pw\n%y: i32 = load.i32 param(0) %qw\n%z: i32 = load.i32 param(0) %rw\n"
           "%u: i32 = mul.i32 %s, %seven\n%v: i32 = add.i32 %u, %x\n%w: i32 = xor.i32 %v, %y\n"
           "%t: i32 = add.i32 %w, %z\n%j: i32 = add.i32 %i, %one\n%pn: i32 = add.i32 %p, %step\n"
           "%qn: i32 = add.i32 %step, %q\n%rn: i32 = add.i32 %r, %four\n%c: i32 = lt_u.i32 %j, %n\n"
           "if b1 %c {\ncontinue b0 (%j, %t, %pn, %qn, %rn)\n} else {\nbr b1 ()\n}\nbr b0 (%t)\n}";
  };
  const auto params = [](const ir::Module& module) {
    const ir::Function& f = module.function(module.entry);
    uint32_t count = 0;
    ir::ForEachOp(f, [&](ir::OpId id) {
      count = f.op(id).code == ir::Opcode::kLoop && count == 0 ? f.region(f.op(id).body).param_count : count;
    });
    return count;
  };
  for (const char* const leader : {"%one", "%two", "%four"}) {
    for (const uint32_t m : {0u, 3u, 0x0fffffffu, 0xffffffffu}) {
      for (const uint32_t n : {1u, 4u, 5u, 9u, 31u}) {
        ExpectSame(kernel(leader, "%two"), n, m);
        ExpectSame(kernel(leader, "%four"), n, m);
      }
    }
  }
  EXPECT_EQ(params(Ahead(Kernel(kernel("%two", "%two")))->module), 4u);
  EXPECT_EQ(params(Ahead(Kernel(kernel("%four", "%two")))->module), 4u);
  EXPECT_EQ(params(Ahead(Kernel(kernel("%two", "%four")))->module), 4u);  // Words require no more.
  EXPECT_EQ(params(Ahead(Kernel(kernel("%one", "%two")))->module), 5u);
}

// The original accesses of a form are composed through both forms.
TEST(LoadsAheadTest, TilesKeepTheirLanes) {
  const ir::Module module = Kernel(Loop(kLoad, "%zero", "%one", "lt_s", "%n"));
  const ir::Function& f = module.function(module.entry);
  CoarseModule tile;
  tile.original.resize(f.ops.size());
  tile.lane.resize(f.ops.size());
  tile.needs_alignment = true;
  tile.group = {4, 2, 1};
  for (uint32_t i = 0; i < f.ops.size(); ++i) {
    tile.original[i] = ir::OpId(1'000 + i);
    tile.lane[i] = {static_cast<uint8_t>(i), 1};
  }
  const std::optional<CoarseModule> ahead = LoadAhead(module, std::vector<bool>(f.ops.size(), true), &tile);
  ASSERT_TRUE(ahead);
  EXPECT_TRUE(ahead->needs_alignment);
  EXPECT_EQ(ahead->group, tile.group);
  const ir::Function& to = ahead->module.function(ahead->module.entry);
  ASSERT_EQ(ahead->original.size(), to.ops.size());
  uint32_t loads = 0;
  ir::ForEachOp(to, [&](ir::OpId id) {
    if (to.op(id).code == ir::Opcode::kLoad) {
      ++loads;
      const ir::OpId original = ahead->original[id.index];
      ASSERT_TRUE(original.valid());
      EXPECT_EQ(f.op(ir::OpId(original.index - 1'000)).code, ir::Opcode::kLoad);
      EXPECT_EQ(ahead->lane[id.index][0], original.index - 1'000);
    }
  });
  EXPECT_EQ(loads, 9u);
  tile.computed[0] = ir::ValueId(0u);
  EXPECT_FALSE(LoadAhead(module, std::vector<bool>(f.ops.size(), true), &tile));
}

}  // namespace
}  // namespace hpvm::pass
