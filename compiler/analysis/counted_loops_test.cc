// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/counted_loops.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

using Way = LoopCount::Test;

// Returns the count of a loop with the parameters %i, which starts at %n, and %p, which starts at %b. The loop
// continues while %c is not 0; `next` defines %c and the next iteration's values %j and %q.
std::optional<LoopCount> Count(const std::string& next) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nparam buffer inout \"b\"\nparam i32 \"n\"\nparam i32 \"m\"\nentry f0\n"
      "func f0 \"f\" (%b: i32, %n: i32, %m: i32) -> () {\n%one: i32 = const.i32 1\n%three: i32 = const.i32 3\n"
      "%two: i32 = const.i32 -2\nloop b0 (%i: i32 = %n, %p: i32 = %b) {\n%at: i32 = sub.i32 %p, %b\n"
      "%v: i32 = load.i32 param(0) %at\n" +
      next + "\nif b1 %c {\ncontinue b0 (%j, %q)\n} else {\nbr b1 ()\n}\nbr b0 ()\n}\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  const ir::Function& f = module->function(module->entry);
  ir::OpId loop;
  ir::ForEachOp(f, [&](ir::OpId id) { loop = f.op(id).code == ir::Opcode::kLoop ? id : loop; });
  const CountedLoops loops(f);
  return LoopForms(loops, loop).Count();
}

TEST(CountedLoops, CountsDownToZero) {
  const auto count = Count("%j: i32 = add.i32 %i, %two\n%q: i32 = add.i32 %p, %one\n%c: i32 = add.i32 %two, %i");
  ASSERT_TRUE(count);
  EXPECT_EQ(count->test, Way::kNotEqual);
  EXPECT_EQ(count->tested.step, -2);
  EXPECT_EQ(count->tested.constant, 0xfffffffeu);  // The value after the first iteration.
  ASSERT_EQ(count->tested.terms.size(), 1u);
  EXPECT_EQ(count->tested.terms[0].second, 1u);
  EXPECT_TRUE(count->bound.terms.empty());
}

TEST(CountedLoops, FindsTheBoundOnEitherSide) {
  const std::string steps = "%j: i32 = add.i32 %i, %one\n%q: i32 = add.i32 %p, %two\n";
  const auto below = Count(steps + "%c: i32 = lt_s.i32 %j, %m");
  ASSERT_TRUE(below);
  EXPECT_EQ(below->test, Way::kLess);
  EXPECT_TRUE(below->is_signed);
  const auto above = Count(steps + "%c: i32 = gt_u.i32 %m, %i");
  ASSERT_TRUE(above);
  EXPECT_EQ(above->test, Way::kLess);
  EXPECT_FALSE(above->is_signed);
  EXPECT_EQ(above->tested.constant, 0u);
  EXPECT_TRUE(Count(steps + "%c: i32 = gt_s.i32 %q, %m"));
}

TEST(CountedLoops, RefusesWhatDoesNotLeadToItsBound) {
  const std::string steps = "%j: i32 = add.i32 %i, %one\n%q: i32 = add.i32 %p, %three\n";
  EXPECT_FALSE(Count(steps + "%c: i32 = gt_s.i32 %j, %m"));  // The step leads away from the bound.
  EXPECT_FALSE(Count(steps + "%c: i32 = ne.i32 %q, %m"));    // The step is not a power of two.
  EXPECT_FALSE(Count(steps + "%c: i32 = lt_s.i32 %j, %v"));  // The bound is loaded again in each iteration.
  EXPECT_FALSE(Count(steps + "%c: i32 = eq.i32 %j, %m"));    // Continues on equality.
  EXPECT_FALSE(Count("%j: i32 = mul.i32 %i, %three\n%q: i32 = add.i32 %p, %one\n%c: i32 = lt_u.i32 %j, %m"));
  EXPECT_FALSE(Count("%j: i32 = add.i32 %i, %v\n%q: i32 = add.i32 %p, %one\n%c: i32 = lt_u.i32 %j, %m"));
}

TEST(CountedLoops, TestsInTheMiddle) {
  const auto count = [](const std::string& more) {
    const StatusOr<ir::Module> module = ir::ParseModule(
        "module \"m\"\nmemory 65536 65536\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
        "func f0 \"f\" (%b: i32, %n: i32) -> () {\n%one: i32 = const.i32 1\nloop b0 (%i: i32 = %n) {\n"
        "block b1 () {\n%c: i32 = lt_s.i32 %i, %n\nif b2 %c {\nbr b1 ()\n} else {\nbr b2 ()\n}\n" +
        more + "store.i32 param(0) %one, %i\nreturn ()\n}\n%j: i32 = add.i32 %i, %one\ncontinue b0 (%j)\n}\n}\n");
    EXPECT_TRUE(module.ok()) << module.status();
    const ir::Function& f = module->function(module->entry);
    ir::OpId loop;
    ir::ForEachOp(f, [&](ir::OpId id) { loop = f.op(id).code == ir::Opcode::kLoop ? id : loop; });
    const CountedLoops loops(f);
    EXPECT_EQ(loops.ops_in(loop), more.empty() ? 9u : 12u);
    return LoopForms(loops, loop).Count();
  };
  ASSERT_TRUE(count(""));
  EXPECT_EQ(count("")->test, Way::kLess);
  EXPECT_FALSE(count("if b3 %i {\nbr b1 ()\n} else {\nbr b3 ()\n}\n"));
}

TEST(CountedLoops, RefusesSeveralWaysAround) {
  const std::string steps = "%j: i32 = add.i32 %i, %one\n%q: i32 = add.i32 %p, %one\n%c: i32 = lt_s.i32 %j, %m\n";
  EXPECT_TRUE(Count(steps));
  EXPECT_FALSE(Count(steps + "if b2 %v {\ncontinue b0 (%n, %q)\n} else {\nbr b2 ()\n}"));
}

}  // namespace
}  // namespace hpvm::analysis
