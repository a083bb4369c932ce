// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/inline_calls.h"

#include <gtest/gtest.h>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass {
namespace {

ir::Module Inlined(const std::string& functions) {
  StatusOr<ir::Module> module =
      ir::ParseModule("module \"m\"\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n" + functions);
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  EXPECT_TRUE(InlineCalls(*module).ok());
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *module;
}

std::string Entry(const std::string& functions) {
  const ir::Module module = Inlined(functions);
  return ir::Print(module, module.entry);
}

// A call becomes a block whose results are the callee's results, from any of its returns.
TEST(InlineCallsTest, BodyTakesTheCallsPlace) {
  EXPECT_EQ(Entry("func f0 \"k\" (%b: i32, %n: i32) -> () {\n %v: i32 = call f1 (%n) @7\n store.i32 flat %b, %v @8\n"
                  " return ()\n}\n"
                  "func f1 \"clamp\" (%x: i32) -> (i32) {\n %c: i32 = const.i32 9\n %d: i32 = gt_s.i32 %x, %c\n"
                  " if b0 %d @11 {\n return (%c)\n} else {\n br b0 ()\n}\n return (%x)\n}\n"),
            "func f0 \"k\" (%0: i32, %1: i32) -> () {\n"
            "  %2: i32 = block b0 () @7 {\n"
            "    %3: i32 = const.i32 9 @0 in f1\n"
            "    %4: i32 = gt_s.i32 %1, %3 @0 in f1\n"
            "    if b1 %4 @11 in f1 {\n"
            "      br b0 (%3) @0 in f1\n"
            "    } else {\n"
            "      br b1 () @0 in f1\n"
            "    }\n"
            "    br b0 (%1) @0 in f1\n"
            "  }\n"
            "  store.i32 flat %0, %2 @8\n"
            "  return ()\n"
            "}\n");
}

// A function that stores to scratch state is not inlined, but its caller is: the entry never stores to scratch state.
TEST(InlineCallsTest, StoresToScratchStayOut) {
  const std::string functions =
      "func f0 \"k\" (%b: i32, %n: i32) -> () {\n call f1 (%n)\n return ()\n}\n"
      "func f1 \"a\" (%x: i32) -> () {\n call f2 (%x)\n store.i32 flat %x, %x\n return ()\n}\n"
      "func f2 \"b\" (%x: i32) -> () {\n store.i32 scratch %x, %x\n return ()\n}\n";
  StatusOr<ir::Module> module =
      ir::ParseModule("module \"m\"\nstate 64\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n" + functions);
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(InlineCalls(*module).ok());
  const std::string text = ir::Print(*module, module->entry);
  EXPECT_EQ(text.find("scratch"), std::string::npos) << text;
  EXPECT_NE(text.find("call f2"), std::string::npos) << text;
  EXPECT_EQ(text.find("call f1"), std::string::npos) << text;
}

// A function that loads what its callee has stored there is not inlined either; tables are loaded in the entry.
TEST(InlineCallsTest, LoadsOfWhatCalleesLeaveStayOut) {
  const std::string functions =
      "func f0 \"k\" (%b: i32, %n: i32) -> () {\n call f1 (%n)\n call f3 (%n)\n return ()\n}\n"
      "func f1 \"a\" (%x: i32) -> () {\n call f2 (%x)\n %y: i32 = load.i32 state %x\n store.i32 flat %x, %y\n return "
      "()\n}\n"
      "func f2 \"b\" (%x: i32) -> () {\n store.i32 scratch %x, %x\n return ()\n}\n"
      "func f3 \"t\" (%x: i32) -> () {\n %y: i32 = load.i32 state %x\n store.i32 flat %x, %y\n return ()\n}\n";
  StatusOr<ir::Module> module =
      ir::ParseModule("module \"m\"\nstate 64\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n" + functions);
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(InlineCalls(*module).ok());
  const std::string text = ir::Print(*module, module->entry);
  EXPECT_NE(text.find("call f1"), std::string::npos) << text;
  EXPECT_EQ(text.find("call f2"), std::string::npos) << text;
  EXPECT_EQ(text.find("call f3"), std::string::npos) << text;
}

// Chains of calls disappear; cycles of calls remain, however long.
TEST(InlineCallsTest, RecursionStays) {
  struct Case {
    const char* name;
    const char* functions;
    bool calls;
  };
  const std::string k = "func f0 \"k\" (%b: i32, %n: i32) -> () {\n call f1 (%n)\n return ()\n}\n";
  const Case kCases[] = {
      {"Chain",
       "func f1 \"a\" (%x: i32) -> () {\n call f2 (%x)\n call f2 (%x)\n return ()\n}\n"
       "func f2 \"b\" (%x: i32) -> () {\n store.i32 flat %x, %x\n return ()\n}\n",
       false},
      {"Itself", "func f1 \"a\" (%x: i32) -> () {\n call f1 (%x)\n return ()\n}\n", true},
      {"Two",
       "func f1 \"a\" (%x: i32) -> () {\n call f2 (%x)\n return ()\n}\n"
       "func f2 \"b\" (%x: i32) -> () {\n call f1 (%x)\n return ()\n}\n",
       true},
      {"NeverReturns", "func f1 \"a\" (%x: i32) -> () {\n trap 1 @5\n}\n", false},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const std::string text = Entry(k + c.functions);
    EXPECT_EQ(text.find("call") != std::string::npos, c.calls) << text;
  }
}

// A chain in which each function calls the next twice would double at every step; inlining stops at the limit.
TEST(InlineCallsTest, SizeIsBounded) {
  std::string functions = "func f0 \"k\" (%b: i32, %n: i32) -> () {\n call f1 (%n)\n return ()\n}\n";
  constexpr int kDepth = 40;
  for (int i = 1; i <= kDepth; ++i) {
    const std::string next = std::to_string(i + 1);
    functions += "func f" + std::to_string(i) + " \"a\" (%x: i32) -> () {\n" +
                 (i < kDepth ? " call f" + next + " (%x)\n call f" + next + " (%x)\n" : " store.i32 flat %x, %x\n") +
                 " return ()\n}\n";
  }
  const ir::Module module = Inlined(functions);
  for (const ir::Function& function : module.functions) {
    EXPECT_LE(function.ops.size(), kInlinedOpsMax + 100);
  }
}

// The golden kernels behave the same afterwards, and their traps name the same functions.
TEST(InlineCallsTest, KeepsTheMeaning) {
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    ir::testing::CheckGoldenFile(path,
                                 [](const ir::Module& module, const ir::Launch& launch) -> StatusOr<ir::TrapReport> {
                                   ir::Module changed = module;
                                   HPVMD_RETURN_IF_ERROR(InlineCalls(changed));
                                   return ir::Interpret(changed, launch);
                                 });
  }
}

}  // namespace
}  // namespace hpvm::pass
