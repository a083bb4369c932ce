// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/remove_barriers.h"

#include <gtest/gtest.h>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass {
namespace {

ir::Module Parse(const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nuses barrier\nuses group_memory\nglobal mut i32 0x0\nformat \"%d\"\n"
      "param buffer inout \"b\"\nparam buffer in \"c\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"kernel\" (%b: i32, %c: i32, %n: i32) -> () {\n %z: i32 = const.i32 0\n %o: i32 = const.i32 1\n"
      " %l: i32 = local_id.i32 %z\n %g: i32 = local_alloc %o\n" +
      body + "\n}\nfunc f1 \"sync\" () -> () {\n barrier @99\n return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status() << body;
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *module;
}

// Returns the bytes of the entry's remaining barriers, in order.
std::string Left(const ir::Module& module) {
  const std::string text = ir::Print(module, module.entry);
  std::string left;
  for (size_t at = text.find("barrier @"); at != std::string::npos; at = text.find("barrier @", at + 1)) {
    left += (left.empty() ? "" : " ") + text.substr(at + 9, text.find('\n', at) - at - 9);
  }
  return left;
}

struct Case {
  const char* name;
  const char* body;
  const char* left;
};

// A barrier remains exactly if accesses that may touch the same bytes, one of them a write, are on both sides.
TEST(RemoveBarriersTest, Pairs) {
  const Case kCases[] = {
      {"NothingBefore", "barrier @1\n store.i32 group %g, %l\n return ()", ""},
      {"NothingBehind", "store.i32 group %g, %l\n barrier @1\n return ()", ""},
      {"WriteRead", "store.i32 group %g, %l\n barrier @1\n %v: i32 = load.i32 group %g\n return ()", "1"},
      {"ReadWrite", "%v: i32 = load.i32 group %g\n barrier @1\n store.i32 group %g, %l\n return ()", "1"},
      {"WriteWrite", "store.i32 group %g, %l\n barrier @1\n store.i32 group %g, %o\n return ()", "1"},
      {"ReadRead", "%v: i32 = load.i32 group %g\n barrier @1\n %w: i32 = load.i32 group %g\n return ()", ""},
      {"GroupThenBuffer", "store.i32 group %g, %l\n barrier @1\n %v: i32 = load.i32 param(0) %z\n return ()", ""},
      {"ParametersMayBeTheSame", "store.i32 param(0) %z, %l\n barrier @1\n %v: i32 = load.i32 param(1) %z\n return ()",
       "1"},
      {"FlatMayBeGroup", "store.i32 flat %g, %l\n barrier @1\n %v: i32 = load.i32 group %g\n return ()", "1"},
      {"FlatMayBeBuffer", "store.i32 flat %b, %l\n barrier @1\n %v: i32 = load.i32 param(1) %z\n return ()", "1"},
      {"ModuleMemoryIsOwn", "store.i32 module %z, %l\n barrier @1\n %v: i32 = load.i32 module %z\n return ()", ""},
      {"GlobalsAreOwn", "global_set.i32 g0 %l\n barrier @1\n %v: i32 = global_get.i32 g0\n return ()", ""},
      {"AtomicsKeepOrder",
       "%v: i32 = atomic_load.i32 group %g\n barrier @1\n %w: i32 = atomic_load.i32 group %g\n return ()", "1"},
      {"AtomicThenLoad",
       "%v: i32 = atomic_add.i32 param(0) %z, %o\n barrier @1\n %w: i32 = load.i32 param(1) %z\n return ()", "1"},
      {"Copy", "memory_copy %b, %c, %o\n barrier @1\n %v: i32 = load.i32 group %g\n return ()", "1"},
      {"Records", "print p0 (%l)\n barrier @1\n print p0 (%l)\n return ()", "1"},
      {"RecordThenLoad", "print p0 (%l)\n barrier @1\n %v: i32 = load.i32 group %g\n return ()", ""},
      {"Twice", "store.i32 group %g, %l\n barrier @1\n barrier @2\n %v: i32 = load.i32 group %g\n return ()", "2"},
      {"OneOfTwoIsEnough",
       "store.i32 group %g, %l\n barrier @1\n store.i32 param(0) %z, %l\n barrier @2\n %v: i32 = load.i32 group %g\n"
       " return ()",
       "2"},
      {"CallsDoAnything", "store.i32 group %g, %l\n barrier @1\n call f1 ()\n return ()", "1"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    ir::Module module = Parse(c.body);
    ASSERT_TRUE(RemoveBarriers(module).ok());
    EXPECT_TRUE(ir::Verify(module).empty()) << ToString(ir::Verify(module));
    EXPECT_EQ(Left(module), c.left);
  }
}

constexpr char kLoopEnd[] =
    " %j: i32 = add.i32 %i, %o\n %m: i32 = lt_u.i32 %j, %n\n"
    " if b9 %m {\n continue b1 (%j)\n} else {\n br b9 ()\n}\n br b1 ()\n}\n";

// A loop makes later accesses precede a barrier, and an if adds the accesses of one region only.
TEST(RemoveBarriersTest, Paths) {
  const std::string end = kLoopEnd;
  const std::pair<std::string, const char*> kCases[] = {
      {"loop b1 (%i: i32 = %z) {\n %v: i32 = load.i32 group %g\n barrier @1\n store.i32 group %g, %i\n barrier @2\n" +
           end + " return ()",
       "1 2"},
      // A barrier at the end of an iteration is followed only by reads of the next iteration.
      {"loop b1 (%i: i32 = %z) {\n %v: i32 = load.i32 group %g\n barrier @1\n" + end + " return ()", ""},
      // Around the back edge the store conflicts with itself.
      {"loop b1 (%i: i32 = %z) {\n store.i32 group %g, %i\n barrier @1\n" + end + " return ()", "1"},
      {"loop b1 (%i: i32 = %z) {\n %v: i32 = load.i32 param(0) %z\n" + end +
           " barrier @1\n store.i32 param(0) %z, %l\n"
           " return ()",
       "1"},
      {"if b1 %n {\n store.i32 group %g, %l\n br b1 ()\n} else {\n br b1 ()\n}\n barrier @1\n"
       " %v: i32 = load.i32 group %g\n return ()",
       "1"},
      {"if b1 %n {\n store.i32 group %g, %l\n return ()\n} else {\n br b1 ()\n}\n barrier @1\n"
       " %v: i32 = load.i32 group %g\n return ()",
       ""},
      // The outer barrier remains necessary if the inner one is skipped.
      {"store.i32 group %g, %l\n if b1 %n {\n barrier @1\n br b1 ()\n} else {\n br b1 ()\n}\n barrier @2\n"
       " %v: i32 = load.i32 group %g\n return ()",
       "2"},
  };
  for (const auto& [body, left] : kCases) {
    SCOPED_TRACE(body);
    ir::Module module = Parse(body);
    ASSERT_TRUE(RemoveBarriers(module).ok());
    EXPECT_TRUE(ir::Verify(module).empty()) << ToString(ir::Verify(module));
    EXPECT_EQ(Left(module), left);
  }
}

// A barrier that some instance of a group may miss traps, and the trap must remain.
TEST(RemoveBarriersTest, TrapsStay) {
  for (const char* condition : {"%l", "%v"}) {
    SCOPED_TRACE(condition);
    ir::Module module = Parse(std::string("%v: i32 = load.i32 param(0) %z\n if b1 ") + condition +
                              " {\n barrier @1\n br b1 ()\n} else {\n br b1 ()\n}\n return ()");
    ASSERT_TRUE(RemoveBarriers(module).ok());
    EXPECT_EQ(Left(module), "1");
  }
}

// The flag is cleared with the last barrier, and the report names the line.
TEST(RemoveBarriersTest, FlagAndReport) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nuses barrier\nparam buffer inout \"b\"\nentry f0\n"
      "func f0 \"kernel\" (%b: i32) -> () {\n barrier @7\n return ()\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  KernelReport report;
  ASSERT_TRUE(RemoveBarriers(*module, &report).ok());
  EXPECT_FALSE(module->uses_barrier);
  ASSERT_EQ(report.remarks.size(), 1u);
  EXPECT_EQ(report.remarks[0].kind, KernelRemark::Kind::kBarrier);
  EXPECT_EQ(report.remarks[0].source, 7u);
}

// The golden kernels behave the same afterwards.
TEST(RemoveBarriersTest, KeepsTheMeaning) {
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    ir::testing::CheckGoldenFile(path,
                                 [](const ir::Module& module, const ir::Launch& launch) -> StatusOr<ir::TrapReport> {
                                   ir::Module changed = module;
                                   HPVMD_RETURN_IF_ERROR(RemoveBarriers(changed));
                                   return ir::Interpret(changed, launch);
                                 });
  }
}

}  // namespace
}  // namespace hpvm::pass
