// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/remove_dead.h"

#include <gtest/gtest.h>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass {
namespace {

std::string After(const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%0: i32, %1: i32) -> () {\n" +
      body + "}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  EXPECT_TRUE(RemoveDead(*module).ok());
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  const std::string text = ir::Print(*module, module->entry);
  return text.substr(text.find('\n') + 1);
}

// Values that are unused or always the same are removed; effects, and values that change, remain.
TEST(RemoveDeadTest, Bodies) {
  struct Case {
    const char* name;
    const char* before;
    const char* after;
  };
  const Case kCases[] = {
      {"UnusedSum", "%2: i32 = add.i32 %0, %1\n return ()\n", "  return ()\n}\n"},
      {"UnusedLoadMayTrap", "%2: i32 = load.i32 flat %1\n return ()\n",
       "  %2: i32 = load.i32 flat %1\n  return ()\n}\n"},
      {"UnusedChain", "%2: i32 = add.i32 %0, %1\n %3: i32 = mul.i32 %2, %2\n return ()\n", "  return ()\n}\n"},
      {"UnusedResult", "%2: i32 = block b0 () {\n store.i32 flat %0, %1\n br b0 (%1)\n}\n return ()\n",
       "  block b0 () {\n    store.i32 flat %0, %1\n    br b0 ()\n  }\n  return ()\n}\n"},
      {"SameFromBothSides",
       "%2: i32 = if b0 %1 {\n br b0 (%1)\n} else {\n br b0 (%1)\n}\n store.i32 flat %0, %2\n return ()\n",
       "  if b0 %1 {\n    br b0 ()\n  } else {\n    br b0 ()\n  }\n  store.i32 flat %0, %1\n  return ()\n}\n"},
      {"InnerValueStays",
       "%2: i32 = block b0 () {\n %3: i32 = load.i32 flat %0\n br b0 (%3)\n}\n store.i32 flat %0, %2\n return ()\n",
       "  %2: i32 = block b0 () {\n    %3: i32 = load.i32 flat %0\n    br b0 (%3)\n  }\n"
       "  store.i32 flat %0, %2\n  return ()\n}\n"},
      {"CarriedUnchanged",
       "%2: i32, %3: i32 = loop b0 (%4: i32 = %0, %5: i32 = %1) {\n %6: i32 = sub.i32 %5, %1\n if b1 %6 {\n"
       " continue b0 (%4, %6)\n} else {\n br b1 ()\n}\n br b0 (%4, %5)\n}\n store.i32 flat %2, %3\n return ()\n",
       "  %2: i32 = loop b0 (%3: i32 = %1) {\n    %4: i32 = sub.i32 %3, %1\n    if b1 %4 {\n      continue b0 (%4)\n"
       "    } else {\n      br b1 ()\n    }\n    br b0 (%3)\n  }\n  store.i32 flat %0, %2\n  return ()\n}\n"},
      {"BehindWhatNothingLeaves",
       "%2: i32 = block b0 () {\n return ()\n}\n if b1 %2 {\n store.i32 flat %0, %1\n br b1 ()\n} else {\n"
       " br b1 ()\n}\n return ()\n",
       "  block b0 () {\n    return ()\n  }\n  trap 1\n}\n"},
      {"LeavesThatAreCutDoNotCount",
       "block b0 () {\n block b1 () {\n return ()\n}\n br b0 ()\n}\n store.i32 flat %0, %1\n return ()\n",
       "  block b0 () {\n    block b1 () {\n      return ()\n    }\n    trap 1\n  }\n"
       "  trap 1\n}\n"},
      {"TableKeepsItsList",
       "%2: i32 = block b0 () {\n %3: i32 = block b1 () {\n br_table %1 [b0, b1] (%1)\n}\n br b0 (%3)\n}\n "
       "return ()\n",
       "  %2: i32 = block b0 () {\n    %3: i32 = block b1 () {\n      br_table %1 [b0, b1] (%1)\n    }\n"
       "    br b0 (%3)\n  }\n  return ()\n}\n"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(After(c.before), c.after);
  }
}

// The golden kernels behave the same afterwards.
TEST(RemoveDeadTest, KeepsTheMeaning) {
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    ir::testing::CheckGoldenFile(path,
                                 [](const ir::Module& module, const ir::Launch& launch) -> StatusOr<ir::TrapReport> {
                                   ir::Module changed = module;
                                   HPVMD_RETURN_IF_ERROR(RemoveDead(changed));
                                   return ir::Interpret(changed, launch);
                                 });
  }
}

}  // namespace
}  // namespace hpvm::pass
