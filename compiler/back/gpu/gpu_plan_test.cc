// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/gpu_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GpuTarget Big() {
  GpuTarget target;
  target.has_int64 = target.has_fp64 = target.has_int64_atomics = true;
  target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.local_bytes_max = 48 * 1024;
  target.buffers_max = 16;
  return target;
}

struct Planned {
  ir::Module module;
  GpuPlan plan;
  Diagnostics diagnostics;

  const ir::Function& entry() const { return module.function(module.entry); }
  // Returns the n-th operation with that opcode.
  ir::OpId Find(ir::Opcode code, int n = 0) const {
    ir::OpId found;
    ir::ForEachOp(entry(), [&](ir::OpId id) {
      if (entry().op(id).code == code && n-- == 0) {
        found = id;
      }
    });
    return found;
  }
  Reach ReachOf(ir::Opcode code, int n = 0) const { return plan.reach[Find(code, n).index]; }
  uint32_t AlignmentOf(ir::Opcode code, int n = 0) const {
    return plan.alignment[entry().operands_of(entry().op(Find(code, n)))[0].index];
  }
};

// Plans a kernel with the buffer %b, the read-only buffer %a and the number %n.
Planned Plan(const std::string& directives, const std::string& body, const std::string& functions = "",
             const GpuTarget& target = Big()) {
  StatusOr<ir::Module> module =
      ir::ParseModule("module \"m\"\n" + directives +
                      "param buffer inout \"b\"\nparam buffer in \"a\"\nparam i32 \"n\"\nentry f0\n"
                      "func f0 \"f\" (%b: i32, %a: i32, %n: i32) -> () {\n"
                      "%zero: i32 = const.i32 0\n%two: i32 = const.i32 2\n%id: i32 = instance_id.i32 %zero\n" +
                      body + "\n return ()\n}\n" + functions);
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(pass::RunGpuPipeline(*module, {.verify_each = true}).ok());
  Planned planned{*std::move(module), {}, {}};
  planned.plan = PlanGpu(planned.module, target, planned.diagnostics);
  return planned;
}

constexpr char kStack[] = "memory 65536 65536\nglobal mut i32 0x8000\nstack_pointer g0\n";

// A local array on the shadow stack becomes private memory of the work item. Its size is the amount by which the
// pointer is lowered, through calls too, whatever the index.
TEST(GpuPlanTest, LocalArraysArePrivate) {
  const Planned planned = Plan(kStack,
                               "%sp: i32 = global_get.i32 g0\n%size: i32 = const.i32 32\n"
                               "%fp: i32 = sub.i32 %sp, %size\nglobal_set.i32 g0 %fp\n"
                               "%at: i32 = shl.i32 %n, %two\n%p: i32 = add.i32 %fp, %at\n"
                               "store.i32 flat %p, %n\ncall f1 (%b)\n%v: i32 = load.i32 flat %p\n"
                               "%back: i32 = add.i32 %fp, %size\nglobal_set.i32 g0 %back\nstore.i32 flat %b, %v",
                               "func f1 \"g\" (%b: i32) -> () {\n%sp: i32 = global_get.i32 g0\n"
                               "%size: i32 = const.i32 16\n%fp: i32 = sub.i32 %sp, %size\n"
                               "%v: i32 = load.i32 flat %b\nstore.i32 flat %fp, %v\nreturn ()\n}\n");
  EXPECT_THAT(planned.diagnostics, IsEmpty());
  ASSERT_EQ(planned.plan.module_memory.size(), 1u);
  const OwnMemory& own = planned.plan.module_memory[0];
  EXPECT_EQ(own.begin, 0x8000u - 48);
  EXPECT_EQ(own.end, 0x8000u);
  EXPECT_TRUE(own.is_written);
  EXPECT_EQ(planned.plan.private_bytes, 48u);
  EXPECT_EQ(planned.ReachOf(ir::Opcode::kStore, 0), Reach::kModule);
  EXPECT_EQ(planned.ReachOf(ir::Opcode::kLoad, 0), Reach::kParam);
  EXPECT_EQ(planned.ReachOf(ir::Opcode::kStore, 1), Reach::kModule);
  EXPECT_EQ(planned.AlignmentOf(ir::Opcode::kStore, 0), 2u);
  EXPECT_FALSE(planned.plan.uses_flat);
}

// An access needs no check where its index stays below the array's end, however the index is computed.
TEST(GpuPlanTest, KnowsWhatStaysInsideAnArray) {
  const struct {
    const char* name;
    const char* index;
    bool is_inside;
  } kCases[] = {
      {"And", "%m: i32 = const.i32 508\n%i: i32 = and.i32 %n, %m", true},
      {"AndTooLarge", "%m: i32 = const.i32 509\n%i: i32 = and.i32 %n, %m", false},
      {"BelowTheArray",
       "%m: i32 = const.i32 31\n%x: i32 = and.i32 %n, %m\n%s: i32 = const.i32 16\n"
       "%i: i32 = sub.i32 %x, %s",
       false},
      {"Select", "%m: i32 = const.i32 508\n%i: i32 = select.i32 %n, %two, %m", true},
      {"SelectTooLarge", "%m: i32 = const.i32 509\n%i: i32 = select.i32 %n, %two, %m", false},
      {"Remainder", "%d: i32 = const.i32 509\n%i: i32 = rem_u.i32 %id, %d", true},
      {"RemainderTooLarge",
       "%m: i32 = const.i32 1023\n%x: i32 = and.i32 %n, %m\n%one: i32 = const.i32 1\n"
       "%d: i32 = or.i32 %x, %one\n%i: i32 = rem_u.i32 %id, %d",
       false},
      {"Xor", "%m: i32 = const.i32 127\n%x: i32 = and.i32 %n, %m\n%k: i32 = const.i32 128\n%i: i32 = xor.i32 %x, %k",
       true},
      {"XorTooLarge",
       "%m: i32 = const.i32 255\n%x: i32 = and.i32 %n, %m\n%k: i32 = const.i32 256\n"
       "%i: i32 = xor.i32 %x, %k",
       false},
      {"Byte", "%i: i32 = load.i32 w1 flat %a", true},
      {"SignedByte", "%i: i32 = load.i32 w1 signed flat %a", false},
      {"Anything", "%i: i32 = shl.i32 %n, %two", false},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const Planned planned = Plan(kStack,
                                 "%sp: i32 = global_get.i32 g0\n%size: i32 = const.i32 512\n"
                                 "%fp: i32 = sub.i32 %sp, %size\nglobal_set.i32 g0 %fp\n" +
                                     std::string(c.index) +
                                     "\n%p: i32 = add.i32 %fp, %i\nstore.i32 flat %p, %n\n"
                                     "%v: i32 = load.i32 flat %p\nstore.i32 flat %b, %v");
    EXPECT_EQ(planned.plan.is_inside[planned.Find(ir::Opcode::kStore).index], c.is_inside);
  }
}

// Data that is read and never written becomes one constant array, of the part that bounded addresses reach; an unknown
// address may reach all of it.
TEST(GpuPlanTest, DataIsConstant) {
  constexpr char kData[] = "memory 65536 65536\ndata 1024 \"0102030405060708090a0b0c0d0e0f10\"\n";
  const Planned bounded = Plan(kData,
                               "%three: i32 = const.i32 3\n%k: i32 = and.i32 %id, %three\n"
                               "%v: i32 = load.i32 w1 flat %k + 1024\nstore.i32 flat %b, %v");
  ASSERT_EQ(bounded.plan.module_memory.size(), 1u);
  EXPECT_EQ(bounded.plan.module_memory[0].begin, 1024u);
  EXPECT_EQ(bounded.plan.module_memory[0].end, 1032u);
  EXPECT_THAT(bounded.plan.module_memory[0].bytes, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_FALSE(bounded.plan.module_memory[0].is_written);
  EXPECT_EQ(bounded.ReachOf(ir::Opcode::kLoad), Reach::kModule);
  const Planned unknown = Plan(kData, "%v: i32 = load.i32 w1 flat %id + 1024\nstore.i32 flat %b, %v");
  ASSERT_EQ(unknown.plan.module_memory.size(), 1u);
  EXPECT_EQ(unknown.plan.module_memory[0].end, 1040u);
  EXPECT_EQ(unknown.ReachOf(ir::Opcode::kLoad), Reach::kFlat);
  EXPECT_TRUE(unknown.plan.uses_bases);
}

// The written part of the data is copied per work item; the rest stays constant.
TEST(GpuPlanTest, WrittenDataIsCopied) {
  const Planned planned = Plan("memory 65536 65536\ndata 64 \"01010101010101010202020202020202\"\n",
                               "%at: i32 = const.i32 64\nstore.i32 flat %at, %id\n%v: i32 = load.i32 flat %zero + 72\n"
                               "%w: i32 = load.i32 flat %at\n%s: i32 = add.i32 %v, %w\nstore.i32 flat %b, %s");
  ASSERT_EQ(planned.plan.module_memory.size(), 2u);
  EXPECT_TRUE(planned.plan.module_memory[0].is_written);
  EXPECT_EQ(planned.plan.module_memory[0].bytes[0], 1);
  EXPECT_FALSE(planned.plan.module_memory[1].is_written);
  EXPECT_EQ(planned.plan.module_memory[1].begin, 72u);
  EXPECT_EQ(planned.plan.constant_bytes, 16u);  // Eight of them initialize the copy.
}

// A copy is initialized only from its first non-zero byte to its last.
TEST(GpuPlanTest, CopiesAreFilledWhereTheyAreNotZero) {
  OwnMemory own{64, 128, true, false, std::vector<uint8_t>(64)};
  EXPECT_EQ(own.filled().end, 0u);
  own.bytes[21] = own.bytes[30] = 1;
  EXPECT_EQ(own.filled().begin, 16u);
  EXPECT_EQ(own.filled().end, 32u);
  own.bytes[63] = 1;
  EXPECT_EQ(own.filled().end, 64u);
}

// Known low zero bits propagate through shifts, products, sums, merges and loops.
TEST(GpuPlanTest, KnowsAlignment) {
  const Planned planned =
      Plan("",
           "%eight: i32 = const.i32 8\n%o: i32 = shl.i32 %id, %two\n%row: i32 = mul.i32 %n, %eight\n"
           "%p: i32 = add.i32 %b, %o\nstore.i32 flat %p, %n\n"
           "loop b0 (%q: i32 = %b) {\n store.i32 flat %q, %n\n %r: i32 = add.i32 %q, %row\n"
           " if b1 %n {\n  continue b0 (%r)\n } else {\n  br b1 ()\n }\n br b0 ()\n}\n"
           "%odd: i32 = add.i32 %b, %n\nstore.i32 flat %odd, %n\n"
           "%one: i32 = const.i32 1\n%half: i32 = shr_u.i32 %o, %one\n%h: i32 = add.i32 %b, %half\n"
           "store.i32 flat %h, %n");
  EXPECT_EQ(planned.AlignmentOf(ir::Opcode::kStore, 0), 2u);
  EXPECT_EQ(planned.AlignmentOf(ir::Opcode::kStore, 1), 3u);
  EXPECT_EQ(planned.AlignmentOf(ir::Opcode::kStore, 2), 0u);
  EXPECT_EQ(planned.AlignmentOf(ir::Opcode::kStore, 3), 1u);
}

// Group memory is allocated in order, and an access to it has reach kGroup.
TEST(GpuPlanTest, PlacesGroupMemory) {
  const Planned planned = Plan("uses group_memory\nuses barrier\n",
                               "%s1: i32 = const.i32 20\n%l: i32 = local_alloc %s1\n%m: i32 = local_alloc %two\n"
                               "store.i32 flat %m, %id\nbarrier\n%v: i32 = load.i32 flat %m\nstore.i32 flat %b, %v");
  EXPECT_THAT(planned.diagnostics, IsEmpty());
  EXPECT_EQ(planned.plan.local_offset[planned.Find(ir::Opcode::kLocalAlloc, 1).index], 32u);
  EXPECT_EQ(planned.plan.local_bytes, 48u);
  EXPECT_EQ(planned.ReachOf(ir::Opcode::kStore, 0), Reach::kGroup);
  EXPECT_EQ(planned.plan.trap_exit, TrapExit::kPostpone);
}

// Accesses that a launch can bound are marked as proven.
TEST(GpuPlanTest, KnowsWhatIsProven) {
  const Planned planned = Plan("",
                               "%o: i32 = shl.i32 %id, %two\n%p: i32 = add.i32 %a, %o\n%v: i32 = load.i32 flat %p\n"
                               "%q: i32 = add.i32 %b, %v\nstore.i32 flat %q, %v");
  EXPECT_TRUE(planned.plan.is_proven[planned.Find(ir::Opcode::kLoad).index]);
  EXPECT_FALSE(planned.plan.is_proven[planned.Find(ir::Opcode::kStore).index]);
}

// Operations that GPUs or this device cannot run are refused with the operation, its source position and the reason.
TEST(GpuPlanTest, Refuses) {
  GpuTarget small = Big();
  small.has_fp64 = small.has_int64_atomics = false;
  small.buffers_max = 2;
  struct Case {
    const char* name;
    std::string directives, body, functions;
    const char* want;
  };
  const Case kCases[] = {
      {"Recursion", "", "call f1 ()", "func f1 \"again\" () -> () {\ncall f1 ()\nreturn ()\n}\n", "\"again\""},
      {"Print", "format \"x\"\n", "print p0 ()", "", "print"},
      {"Grow", "memory 65536 131072\n", "%g: i32 = memory_grow %n\nstore.i32 flat %b, %g", "", "memory_grow"},
      {"Double", "", "%x: f64 = load.f64 flat %a\n%y: f64 = fadd.f64 %x, %x\nstore.f64 flat %b, %y @7", "", "f64"},
      {"Atomic64", "", "%x: i64 = const.i64 1\n%y: i64 = atomic_add.i64 flat %b, %x @7", "", "64-bit atomics"},
      {"LocalSize", "uses group_memory\n", "%l: i32 = local_alloc %n\nstore.i32 flat %l, %n", "", "not a constant"},
      {"LocalMuch", "uses group_memory\n", "%s: i32 = const.i32 65536\n%l: i32 = local_alloc %s\nstore.i32 flat %l, %n",
       "", "group memory"},
      {"Divergence", "uses barrier\n", "if b0 %id {\n barrier\n br b0 ()\n} else {\n br b0 ()\n}", "", "varies"},
      {"OwnStore", "memory 65536 65536\n", "%o: i32 = shl.i32 %n, %two\nstore.i32 flat %o + 1024, %n", "",
       "its own memory"},
      {"Alloca", kStack,
       "%sp: i32 = global_get.i32 g0\n%fp: i32 = sub.i32 %sp, %n\nglobal_set.i32 g0 %fp\nstore.i32 flat %fp, %n", "",
       "no fixed size"},
      {"LocalInLoop", "uses group_memory\n",
       "loop b0 () {\n %l: i32 = local_alloc %two\n store.i32 flat %l, %n\n if b1 %n {\n  continue b0 ()\n } else {\n"
       "  br b1 ()\n }\n br b0 ()\n}",
       "", "a loop"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Planned planned = Plan(c.directives, c.body, c.functions, small);
    ASSERT_TRUE(HasErrors(planned.diagnostics));
    EXPECT_THAT(ToString(planned.diagnostics), HasSubstr(c.want));
  }
}

// A kernel with more buffers than the device takes is refused with the limit.
TEST(GpuPlanTest, RefusesTooManyBuffers) {
  GpuTarget one = Big();
  one.buffers_max = 1;
  const Planned planned = Plan("", "store.i32 flat %b, %n", "", one);
  EXPECT_THAT(ToString(planned.diagnostics), HasSubstr("limit is 1"));
}

}  // namespace
}  // namespace hpvm::gpu
