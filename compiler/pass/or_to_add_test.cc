// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/or_to_add.h"

#include <gtest/gtest.h>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass {
namespace {

// Returns the opcode that computes the value `%result` after the pass.
std::string CodeOf(const std::string& result, const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%0: i32, %1: i32) -> () {\n" +
      body + " return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(OrToAdd(*module).ok());
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  const std::string text = ir::Print(*module, module->entry);
  const size_t at = text.find(result + ": i32 = ") + result.size() + 8;
  return text.substr(at, text.find('.', at) - at);
}

TEST(OrToAddTest, Bodies) {
  struct Case {
    const char* name;
    const char* result;
    const char* body;
    const char* code;
  };
  const Case kCases[] = {
      {"Even", "%5",
       "%2: i32 = const.i32 1\n %3: i32 = const.i32 3\n %4: i32 = shl.i32 %1, %2\n %5: i32 = or.i32 %4, %2\n", "add"},
      {"ConstantFirst", "%4", "%2: i32 = const.i32 1\n %3: i32 = shl.i32 %1, %2\n %4: i32 = or.i32 %2, %3\n", "add"},
      {"AnyNumber", "%3", "%2: i32 = const.i32 1\n %3: i32 = or.i32 %1, %2\n", "or"},
      {"OneBitTooWide", "%5",
       "%2: i32 = const.i32 2\n %3: i32 = const.i32 4\n %4: i32 = shl.i32 %1, %2\n %5: i32 = or.i32 %4, %3\n", "or"},
      {"AllBelow", "%5",
       "%2: i32 = const.i32 2\n %3: i32 = const.i32 3\n %4: i32 = shl.i32 %1, %2\n %5: i32 = or.i32 %4, %3\n", "add"},
      {"MaskedBelow", "%6",
       "%2: i32 = const.i32 2\n %3: i32 = const.i32 3\n %4: i32 = shl.i32 %1, %2\n %5: i32 = and.i32 %0, %3\n"
       " %6: i32 = or.i32 %5, %4\n",
       "add"},
      {"ShiftedBelow", "%6",
       "%2: i32 = const.i32 24\n %3: i32 = const.i32 8\n %4: i32 = shr_u.i32 %0, %2\n %5: i32 = shl.i32 %1, %3\n"
       " %6: i32 = or.i32 %4, %5\n",
       "add"},
      {"ShiftedTooFarDown", "%6",
       "%2: i32 = const.i32 23\n %3: i32 = const.i32 8\n %4: i32 = shr_u.i32 %0, %2\n %5: i32 = shl.i32 %1, %3\n"
       " %6: i32 = or.i32 %4, %5\n",
       "or"},
      {"ByteBelow", "%5",
       "%2: i32 = const.i32 8\n %3: i32 = load.i32 w1 flat %0\n %4: i32 = shl.i32 %1, %2\n"
       " %5: i32 = or.i32 %3, %4\n",
       "add"},
      {"Product", "%4", "%2: i32 = const.i32 12\n %3: i32 = mul.i32 %1, %2\n %4: i32 = or.i32 %3, %2\n", "or"},
      {"Address", "%3", "%2: i32 = const.i32 4\n %3: i32 = or.i32 %0, %2\n", "or"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(CodeOf(c.result, c.body), c.code);
  }
}

// A counter that grows by fours has two free bits; one that grows by twos has one.
TEST(OrToAddTest, Counters) {
  const auto body = [](const std::string& step) {
    return "%2: i32 = const.i32 0\n %3: i32 = const.i32 " + step +
           "\n %4: i32 = const.i32 3\n %5: i32 = loop b0 (%6: i32 = %2) {\n %7: i32 = or.i32 %6, %4\n"
           " store.i32 flat %0, %7\n %8: i32 = add.i32 %6, %3\n %9: i32 = lt_u.i32 %8, %1\n if b1 %9 {\n"
           " continue b0 (%8)\n} else {\n br b1 ()\n}\n br b0 (%8)\n}\n";
  };
  EXPECT_EQ(CodeOf("%7", body("4")), "add");
  EXPECT_EQ(CodeOf("%7", body("2")), "or");
}

// The golden kernels behave the same afterwards.
TEST(OrToAddTest, KeepsTheMeaning) {
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    ir::testing::CheckGoldenFile(path,
                                 [](const ir::Module& module, const ir::Launch& launch) -> StatusOr<ir::TrapReport> {
                                   ir::Module changed = module;
                                   HPVMD_RETURN_IF_ERROR(OrToAdd(changed));
                                   return ir::Interpret(changed, launch);
                                 });
  }
}

}  // namespace
}  // namespace hpvm::pass
