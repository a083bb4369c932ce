// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/split_barriers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns a kernel with a buffer %b, a scalar %n, ids %i and %l, and group memory %g.
ir::Module Parse(const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nuses barrier\nuses group_memory\nparam buffer inout \"b\"\nparam i32 \"n\"\n"
      "entry f0\nfunc f0 \"kernel\" (%b: i32, %n: i32) -> () {\n %z: i32 = const.i32 0\n %o: i32 = const.i32 1\n"
      " %four: i32 = const.i32 4\n %size: i32 = const.i32 4096\n %i: i32 = instance_id.i32 %z\n"
      " %l: i32 = local_id.i32 %z\n %g: i32 = local_alloc %size\n" +
      body + "\n}\n");
  EXPECT_TRUE(module.ok()) << module.status() << body;
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *module;
}

// The result verifies if the values that instances keep count as module memory.
void Verify(const GroupSplit& split) {
  ir::Module copy = split.module;
  for (ir::Function& function : copy.functions) {
    for (ir::Op& op : function.ops) {
      op.space = op.space == ir::Space::kPrivate ? ir::Space::kModule : op.space;
    }
  }
  EXPECT_TRUE(ir::Verify(copy).empty()) << ToString(ir::Verify(copy)) << ir::Print(copy);
}

GroupSplit Split(const std::string& body, KernelReport* report = nullptr) {
  StatusOr<GroupSplit> split = SplitBarriers(Parse(body), report);
  EXPECT_TRUE(split.ok()) << split.status();
  if (!split.ok()) {
    return {};
  }
  Verify(*split);
  return *std::move(split);
}

std::string Gang(const GroupSplit& split, size_t interval) {
  return ir::Print(split.module, split.intervals[interval].gang);
}
std::string Driver(const GroupSplit& split) { return ir::Print(split.module, split.module.entry); }

constexpr char kAddress[] = " %lo: i32 = mul.i32 %l, %four\n %p: i32 = add.i32 %g, %lo\n";

// An instance keeps loaded values across a barrier, but neither uniform values nor functions of its id; of values
// computed from loaded ones, it keeps those with the fewest bytes.
TEST(SplitBarriersTest, Kept) {
  struct Case {
    const char* name;
    const char* before;
    const char* behind;
    uint32_t bytes;
  };
  const Case kCases[] = {
      {"Nothing", "store.i32 group %p, %l", "%v: i32 = load.i32 group %g\n store.i32 group %p, %v", 0},
      {"Address", "store.i32 group %p, %l", "store.i32 group %p, %i", 0},
      {"Loaded", "%v: i32 = load.i32 group %p", "store.i32 group %p, %v", 4},
      {"Wide", "%v: i64 = load.i64 group %p", "store.i64 group %p, %v", 8},
      {"NarrowOfWide", "%v: i64 = load.i64 group %p\n %w: i32 = wrap.i64 %v", "store.i32 group %p, %w", 4},
      {"WideOfNarrow", "%v: i32 = load.i32 group %p\n %w: i64 = extend_u.i32 %v", "store.i64 group %p, %w", 4},
      {"OneOfTwo", "%v: i32 = load.i32 group %p\n %u: i32 = load.i32 group %p + 4\n %w: i32 = add.i32 %v, %u",
       "store.i32 group %p, %w", 4},
      {"TwoOfOne", "%v: i32 = load.i32 group %p\n %u: i32 = add.i32 %v, %l\n %w: i32 = mul.i32 %v, %l",
       "store.i32 group %p, %w\n store.i32 group %p + 4, %u", 4},
      {"DearToRepeat", "%f: f32 = convert_s.i32 %l\n %r: f32 = fsqrt.f32 %f", "store.f32 group %p, %r", 4},
      {"SameForAll", "%v: i32 = mul.i32 %n, %n\n store.i32 group %p, %v", "store.i32 group %p, %v", 0},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const GroupSplit split = Split(std::string(kAddress) + c.before + "\n barrier\n " + c.behind + "\n return ()");
    EXPECT_EQ(split.value_bytes, c.bytes);
  }
}

// The driver has the loop and its counter; the sum that each instance carries has a place.
TEST(SplitBarriersTest, LoopAroundABarrier) {
  const GroupSplit split =
      Split(std::string(kAddress) +
            " %s: i32 = loop b1 (%k: i32 = %z, %a: i32 = %z) {\n store.i32 group %p, %a\n barrier\n"
            " %v: i32 = load.i32 group %g\n %t: i32 = add.i32 %a, %v\n %j: i32 = add.i32 %k, %o\n"
            " %c: i32 = lt_u.i32 %j, %n\n barrier\n if b2 %c {\n continue b1 (%j, %t)\n } else {\n br b2 ()\n }\n"
            " br b1 (%t)\n }\n store.i32 group %p, %s\n return ()");
  const std::string driver = Driver(split);
  EXPECT_THAT(driver, HasSubstr("loop b0 (%"));
  EXPECT_THAT(driver, HasSubstr("lt_u.i32"));
  EXPECT_THAT(driver, Not(HasSubstr("barrier")));
  EXPECT_THAT(driver, Not(HasSubstr("store")));
  for (size_t s = 0; s < split.intervals.size(); ++s) {
    EXPECT_THAT(Gang(split, s), Not(HasSubstr("lt_u")));
    EXPECT_THAT(Gang(split, s), Not(HasSubstr("local_id")));
    EXPECT_FALSE(split.intervals[s].check.has_value());
  }
}

// A pointer that grows uniformly is not kept: the driver carries the sum.
TEST(SplitBarriersTest, SteppedPointer) {
  const GroupSplit split =
      Split(std::string(kAddress) +
            " loop b1 (%k: i32 = %z, %q: i32 = %p) {\n store.i32 group %q, %l\n barrier\n"
            " %v: i32 = load.i32 group %g\n store.i32 group %q + 4, %v\n barrier\n %r: i32 = add.i32 %q, %n\n"
            " %j: i32 = add.i32 %k, %o\n %c: i32 = lt_u.i32 %j, %n\n if b2 %c {\n continue b1 (%j, %r)\n } else {\n"
            " br b2 ()\n }\n br b1 ()\n }\n return ()");
  EXPECT_EQ(split.value_bytes, 0u);
  EXPECT_EQ(split.intervals.size(), 2u);
}

// A condition from memory is compared: the branches lead to a barrier and to the end.
TEST(SplitBarriersTest, CheckedCondition) {
  const GroupSplit split = Split(
      " %v: i32 = load.i32 param(0) %z\n if b1 %v {\n store.i32 group %g, %l\n barrier @77\n"
      " %w: i32 = load.i32 group %g\n store.i32 group %g, %w\n br b1 ()\n } else {\n br b1 ()\n }\n return ()");
  ASSERT_EQ(split.intervals.size(), 3u);
  ASSERT_TRUE(split.intervals[0].check.has_value());
  const GroupCheck& check = *split.intervals[0].check;
  ASSERT_EQ(check.barriers.size(), 2u);
  EXPECT_EQ(check.barriers[0], 77u);
  EXPECT_FALSE(check.barriers[1].has_value());
  EXPECT_EQ(check.function, 0u);
}

// Instances may leave separately after the last barrier of a block: a tail.
TEST(SplitBarriersTest, Tails) {
  const GroupSplit split = Split(
      " %r: i32 = block b0 () {\n store.i32 group %g, %l\n barrier\n %v: i32 = load.i32 group %g\n if b1 %l {\n"
      " br b0 (%v)\n } else {\n br b1 ()\n }\n store.i32 group %g, %v\n br b0 (%n)\n }\n"
      " store.i32 group %g, %r\n if b3 %l {\n return ()\n } else {\n br b3 ()\n }\n store.i32 group %g, %z\n"
      " return ()");
  ASSERT_EQ(split.intervals.size(), 3u);
  EXPECT_EQ(split.value_bytes, 4u);
  EXPECT_THAT(Gang(split, 1), HasSubstr("store.i32 private(0)"));
  EXPECT_THAT(Driver(split), Not(HasSubstr("if")));
}

// Kernels that cannot run by groups, with the reason.
TEST(SplitBarriersTest, Refused) {
  const std::pair<const char*, const char*> kCases[] = {
      // Both branches lead to the same barrier, so that instances may diverge without a trap.
      {"%v: i32 = load.i32 param(0) %z\n block b0 () {\n if b1 %v @5 {\n br b0 ()\n } else {\n br b1 ()\n }\n"
       " %m: i32 = local_alloc %n\n br b0 ()\n }\n store.i32 group %g, %l\n barrier\n"
       " %w: i32 = load.i32 group %g\n return ()",
       "A branch at byte 5 decides which barrier comes next"},
      {"%v: i32 = load.i32 param(0) %z\n %m: i32 = local_alloc %v @6\n return ()",
       "The size of the local_alloc at byte 6 may differ"},
  };
  for (const auto& [body, message] : kCases) {
    SCOPED_TRACE(body);
    const StatusOr<GroupSplit> split = SplitBarriers(Parse(body));
    ASSERT_FALSE(split.ok());
    EXPECT_EQ(split.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(split.status().message()), HasSubstr(message));
  }
}

// Operations of gangs refer to the entry's operations, for facts about their accesses, and to the function for traps.
TEST(SplitBarriersTest, Origins) {
  const ir::Module module = Parse(" store.i32 group %g, %l @8\n barrier\n %v: i32 = load.i32 group %g @9\n return ()");
  const StatusOr<GroupSplit> split = SplitBarriers(module);
  ASSERT_TRUE(split.ok()) << split.status();
  size_t accesses = 0;
  for (const BarrierInterval& interval : split->intervals) {
    const ir::Function& gang = split->module.function(interval.gang);
    ASSERT_EQ(interval.original.size(), gang.ops.size());
    ir::ForEachOp(gang, [&](ir::OpId id) {
      if (gang.op(id).space != ir::Space::kGroup) {
        return;
      }
      ++accesses;
      EXPECT_EQ(gang.op(id).origin, 1u);
      ASSERT_TRUE(interval.original[id.index].valid());
      EXPECT_EQ(module.functions[0].op(interval.original[id.index]).source, gang.op(id).source);
    });
  }
  EXPECT_EQ(accesses, 2u);
}

// The report lists the kept values at each barrier.
TEST(SplitBarriersTest, Report) {
  KernelReport report;
  Split(
      " %v: i32 = load.i32 group %g\n barrier @3\n store.i32 group %g, %v\n barrier @4\n store.i32 group %g, %l\n"
      " return ()",
      &report);
  ASSERT_EQ(report.remarks.size(), 2u);
  EXPECT_EQ(report.remarks[0].source, 3u);
  EXPECT_THAT(report.remarks[0].text, HasSubstr("1 value of 4 bytes"));
  EXPECT_THAT(report.remarks[1].text, HasSubstr("nothing"));
}

}  // namespace
}  // namespace hpvm::pass
