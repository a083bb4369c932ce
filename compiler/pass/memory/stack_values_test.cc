// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/stack_values.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/promote_stack.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::pass {
namespace {

// Returns a kernel that writes %out for each of 32 instances. %fp is the frame's start; the frame has 32 bytes. %v
// differs by instance.
ir::Module Parse(const std::string& body, const std::string& frame = "stack_frame 0x7fe0 0x8000 4\n") {
  StatusOr<ir::Module> module =
      ir::ParseModule("module \"m\"\nmemory 65536 65536\nglobal mut i32 0x8000\nstack_pointer g0\n" + frame +
                      R"(param buffer inout "b"
entry f0
func f0 "k" (%b: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %three: i32 = const.i32 3
  %x: i32 = instance_id.i32 %zero
  %at: i32 = shl.i32 %x, %two
  %factor: i32 = const.i32 0x9e3779b1
  %v: i32 = mul.i32 %x, %factor
  %wide: i64 = extend_s.i32 %v
  %float: f32 = convert_s.i32 %v
  %fp: i32 = const.i32 0x7fe0
)" + body + "\n  store.i32 param(0) %at, %out\n  return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *std::move(module);
}

std::vector<uint32_t> Interpreted(const ir::Module& module) {
  std::vector<uint32_t> words(32, 7);
  ir::Launch launch;
  launch.extent = {words.size(), 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(words.data()), 4 * words.size(), 0}};
  const StatusOr<ir::TrapReport> trap = ir::Interpret(module, launch);
  EXPECT_TRUE(trap.ok() && trap->code == ir::TrapCode::kNone);
  return words;
}

size_t StackAccesses(const ir::Module& module) {
  const ir::Function& f = module.function(module.entry);
  size_t count = 0;
  ir::ForEachOp(
      f, [&](ir::OpId id) { count += ir::HasSpace(f.op(id).code) && f.op(id).space == ir::Space::kStack ? 1 : 0; });
  return count;
}

// Returns true if no remaining access may reach the stack.
bool IsFree(const ir::Module& module) {
  const ir::Function& f = module.function(module.entry);
  bool is_free = true;
  ir::ForEachOp(f, [&](ir::OpId id) {
    const bool reaches =
        ir::HasSpace(f.op(id).code) && (f.op(id).space == ir::Space::kFlat || f.op(id).space == ir::Space::kStack);
    is_free = is_free && !reaches;
  });
  return is_free;
}

struct Case {
  const char* name;
  const char* body;
  size_t stay = 0;  // Remaining accesses.
};

constexpr Case kCases[] = {
    {"BeginsAsZero", "%out: i32 = load.i32 stack %fp + 4\n"},
    {"Word", "store.i32 stack %fp + 4, %v\n%out: i32 = load.i32 stack %fp + 4\n"},
    {"FloatAsBits", "store.f32 stack %fp, %float\n%out: i32 = load.i32 stack %fp\n"},
    {"BitsAsFloat", "store.i32 stack %fp, %v\n%f: f32 = load.f32 stack %fp\n%out: i32 = reinterpret.f32 %f\n"},
    {"Floats", "store.f32 stack %fp, %float\n%f: f32 = load.f32 stack %fp\n%out: i32 = reinterpret.f32 %f\n"},
    {"HalfOfLong",
     "store.i64 w4 stack %fp, %wide\n%l: i64 = load.i64 w4 signed stack %fp\n"
     "%m: i64 = load.i64 w4 stack %fp\n%s: i64 = sub.i64 %l, %m\n%n: i64 = extend_u.i32 %three\n"
     "%h: i64 = shr_u.i64 %s, %n\n%out: i32 = wrap.i64 %h\n"},
    {"HalfOfLongAsFloat",
     "store.i64 w4 stack %fp, %wide\n%f: f32 = load.f32 stack %fp\n"
     "%out: i32 = reinterpret.f32 %f\n"},
    {"LongAsDouble",
     "store.i64 stack %fp + 8, %wide\n%d: f64 = load.f64 stack %fp + 8\n%l: i64 = reinterpret.f64 %d\n"
     "%out: i32 = wrap.i64 %l\n"},
    {"Doubles",
     "%c: f64 = convert_s.i64 %wide\nstore.f64 stack %fp + 8, %c\n%d: f64 = load.f64 stack %fp + 8\n"
     "%out: i32 = trunc_sat_s.f64 %d\n"},
    {"Bytes",
     "store.i32 w1 stack %fp + 5, %v\n%s: i32 = load.i32 w1 signed stack %fp + 5\n"
     "%u: i32 = load.i32 w1 stack %fp + 5\n%l: i64 = load.i64 w1 signed stack %fp + 5\n"
     "%w: i32 = wrap.i64 %l\n%t: i32 = mul.i32 %s, %u\n%out: i32 = sub.i32 %t, %w\n"},
    {"Halves",
     "store.i64 w2 stack %fp + 6, %wide\n%s: i32 = load.i32 w2 signed stack %fp + 6\n"
     "%l: i64 = load.i64 w2 stack %fp + 6\n%w: i32 = wrap.i64 %l\n%out: i32 = xor.i32 %s, %w\n"},
    {"Overlap",
     "store.i32 stack %fp, %v\n%u: i32 = load.i32 w2 stack %fp + 2\nstore.i32 stack %fp + 8, %u\n"
     "%out: i32 = load.i32 stack %fp + 8\n",
     2},
    {"Sixteen",
     "store128 stack %fp + 16, %v, %x, %one, %two\n%u: i32 = load.i32 stack %fp + 20\n"
     "store.i32 stack %fp, %u\n%out: i32 = load.i32 stack %fp\n",
     2},
    {"IndexBeside",
     "%i: i32 = and.i32 %v, %three\n%o: i32 = shl.i32 %i, %two\n%p: i32 = add.i32 %fp, %o\n"
     "store.i32 stack %fp + 16, %x\nstore.i32 stack %p, %v\n%a: i32 = load.i32 stack %fp + 16\n"
     "%c: i32 = load.i32 stack %p\n%out: i32 = add.i32 %a, %c\n",
     2},
    {"IndexAnywhere",
     "%i: i32 = and.i32 %v, %three\n%o: i32 = shl.i32 %i, %two\n%p: i32 = add.i32 %fp, %o\n"
     "store.i32 stack %fp + 12, %x\nstore.i32 stack %p, %v\n%out: i32 = load.i32 stack %fp + 12\n",
     3},
    {"Branch", R"(
  store.i32 stack %fp, %x
  %odd: i32 = and.i32 %x, %one
  if b0 %odd {
    store.i32 stack %fp, %v
    store.i32 stack %fp + 4, %three
    br b0 ()
  } else {
    %w: i32 = load.i32 stack %fp
    %y: i32 = add.i32 %w, %two
    store.i32 stack %fp, %y
    br b0 ()
  }
  %a: i32 = load.i32 stack %fp
  %c: i32 = load.i32 stack %fp + 4
  %out: i32 = add.i32 %a, %c
)"},
    {"LeavesFarOut", R"(
  block b0 () {
    store.i32 stack %fp, %one
    block b1 () {
      %low: i32 = and.i32 %x, %three
      if b2 %low {
        store.i32 stack %fp, %v
        br b0 ()
      } else {
        br b2 ()
      }
      store.i32 stack %fp, %two
      br b1 ()
    }
    %w: i32 = load.i32 stack %fp
    %y: i32 = add.i32 %w, %x
    store.i32 stack %fp, %y
    br b0 ()
  }
  %out: i32 = load.i32 stack %fp
)"},
    {"Loop", R"(
  %trips: i32 = and.i32 %x, %three
  store.i32 stack %fp, %trips
  %last: i32 = loop b0 (%k: i32 = %zero) {
    %i: i32 = load.i32 stack %fp
    %sum: i32 = load.i32 stack %fp + 4
    %more: i32 = add.i32 %sum, %v
    store.i32 stack %fp + 4, %more
    %k2: i32 = add.i32 %k, %one
    if b1 %i {
      %j: i32 = sub.i32 %i, %one
      store.i32 stack %fp, %j
      continue b0 (%k2)
    } else {
      store.i32 stack %fp + 8, %k
      br b0 (%k2)
    }
    br b0 (%k)
  }
  %a: i32 = load.i32 stack %fp + 4
  %c: i32 = load.i32 stack %fp + 8
  %d: i32 = add.i32 %a, %c
  %out: i32 = xor.i32 %d, %last
)"},
    // The table's targets store different words.
    {"Table", R"(
  %low: i32 = and.i32 %x, %three
  %r: i32 = block b0 () {
    store.i32 stack %fp, %one
    %s: i32 = block b1 () {
      store.i32 stack %fp + 4, %v
      %t: i32 = block b2 () {
        store.i32 stack %fp + 8, %two
        br_table %low [b0, b1, b2] (%x)
      }
      store.i32 stack %fp + 4, %t
      br b1 (%two)
    }
    %w: i32 = load.i32 stack %fp + 4
    store.i32 stack %fp, %w
    br b0 (%s)
  }
  %a: i32 = load.i32 stack %fp
  %c: i32 = load.i32 stack %fp + 4
  %d: i32 = load.i32 stack %fp + 8
  %e: i32 = mul.i32 %a, %three
  %g: i32 = add.i32 %e, %c
  %h: i32 = mul.i32 %g, %three
  %i: i32 = add.i32 %h, %d
  %out: i32 = add.i32 %i, %r
)"},
};

class StackValuesTest : public ::testing::TestWithParam<Case> {};

TEST_P(StackValuesTest, Agrees) {
  const ir::Module before = Parse(GetParam().body);
  ir::Module after = before;
  const bool changed = StackValues(after);
  EXPECT_TRUE(ir::Verify(after).empty()) << ToString(ir::Verify(after)) << ir::Print(after);
  EXPECT_EQ(StackAccesses(after), GetParam().stay) << ir::Print(after);
  EXPECT_EQ(changed, StackAccesses(after) != StackAccesses(before));
  EXPECT_EQ(after.stack_frame.has_value(), GetParam().stay != 0);
  EXPECT_EQ(Interpreted(after), Interpreted(before)) << ir::Print(after);
}

INSTANTIATE_TEST_SUITE_P(All, StackValuesTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Unoptimised code: a buffer's address and an index lie on the stack, 8 and 12 bytes above its pointer, beside an
// array of four words that begins at `array`; %k is the offset in it.
std::string Plain(const std::string& place, const std::string& array) {
  return R"(
  %sp: i32 = global_get.i32 g0
  %size: i32 = const.i32 32
  %low: i32 = sub.i32 %sp, %size
  store.i32 flat %low + 8, %b
  store.i32 flat %low + 12, %x
  %i: i32 = load.i32 flat %low + 12
  %o: i32 = shl.i32 %i, %two
  %p: i32 = load.i32 flat %low + 8
  %q: i32 = add.i32 %p, %o
  store.i32 flat %q, %v
)" + place +
         R"(
  %r: i32 = add.i32 %low, %k
  store.i32 flat %r + )" +
         array + R"(, %v
  %w: i32 = load.i32 flat %low + 12
  %back: i32 = load.i32 flat %r + )" +
         array + R"(
  %out: i32 = add.i32 %w, %back
)";
}

// The assumption holds only if nothing else touches the words.
TEST(StackValuesTest, AssumptionsAreShownAfterwards) {
  const std::string low = "%m: i32 = and.i32 %v, %three\n%k: i32 = shl.i32 %m, %two\n";
  struct Place {
    std::string text, array;
    size_t flat;
  };
  for (const Place& place :
       {Place{"%k: i32 = shl.i32 %one, %two\n", "16", 0}, Place{low, "16", 0}, Place{low, "0", 8}, Place{low, "4", 8},
        Place{low, "12", 8}, Place{"%k: i32 = shl.i32 %one, %three\n", "4", 0}}) {
    SCOPED_TRACE(place.text + place.array);
    const ir::Module before = Parse(Plain(place.text, place.array), "");
    ir::Module after = before;
    ASSERT_TRUE(RunCpuPipeline(after, {.verify_each = true}).ok());
    const ir::Function& f = after.function(after.entry);
    size_t flat = 0;
    ir::ForEachOp(
        f, [&](ir::OpId id) { flat += ir::HasSpace(f.op(id).code) && f.op(id).space == ir::Space::kFlat ? 1 : 0; });
    EXPECT_EQ(flat, place.flat) << ir::Print(after);
    if (place.array != "4") {  // Otherwise the buffer's address is overwritten.
      EXPECT_EQ(Interpreted(after), Interpreted(before)) << ir::Print(after);
    }
  }
}

// The assumption fails if an address that is not computed from the stack's pointer is in the stack, or if initial data
// lies there.
TEST(StackValuesTest, OthersReachTheStack) {
  const std::string place = "%k: i32 = shl.i32 %one, %two\n";
  const std::string by_number = "%number: i32 = const.i32 0x7fec\nstore.i32 flat %number, %three\n";
  const std::string in_range =
      "%m: i32 = and.i32 %v, %three\n%n: i32 = shl.i32 %m, %two\nstore.i32 flat %n + 32736, %three\n";
  for (const std::string& other : {by_number, in_range}) {
    const ir::Module before = Parse(Plain(place + other, "16"), "");
    ir::Module after = before;
    ASSERT_TRUE(RunCpuPipeline(after, {.verify_each = true}).ok());
    if (other == by_number) {
      EXPECT_EQ(Interpreted(after), Interpreted(before)) << ir::Print(after);
    }
    EXPECT_FALSE(IsFree(after)) << ir::Print(after);
  }
  for (const uint8_t first : {0, 1}) {
    ir::Module before = Parse(
        "%sp: i32 = global_get.i32 g0\n%size: i32 = const.i32 32\n"
        "%low: i32 = sub.i32 %sp, %size\nstore.i32 flat %low + 12, %b\n"
        "%p: i32 = load.i32 flat %low + 12\n%q: i32 = add.i32 %p, %at\n"
        "store.i32 flat %q, %v\n%out: i32 = load.i32 flat %low + 8\n",
        "");
    before.data = {{0x7fe8, {first}}};
    ir::Module after = before;
    ASSERT_TRUE(RunCpuPipeline(after, {.verify_each = true}).ok());
    EXPECT_EQ(Interpreted(after), Interpreted(before)) << ir::Print(after);
    EXPECT_EQ(IsFree(after), first == 0);
  }
}

// The golden kernels behave the same afterwards.
TEST(StackValuesTest, KeepsTheMeaning) {
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    ir::testing::CheckGoldenFile(path,
                                 [](const ir::Module& module, const ir::Launch& launch) -> StatusOr<ir::TrapReport> {
                                   ir::Module changed = module;
                                   if (PromoteStack(changed)) {
                                     StackValues(changed);
                                   }
                                   return ir::Interpret(changed, launch);
                                 });
  }
}

}  // namespace
}  // namespace hpvm::pass
