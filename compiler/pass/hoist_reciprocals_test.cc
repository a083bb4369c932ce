// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/hoist_reciprocals.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass {
namespace {

// The loop computes %y from %x by `body`, which may use the parameter %s, and %t from before the loop.
std::string Hoisted(const std::string& body, const std::string& reach = "") {
  StatusOr<ir::Module> module = ir::ParseModule(R"(module "m"
param buffer inout "b"
param f32 "s"
param i32 "n"
entry f0
func f0 "f" )" + reach + R"((%b: i32, %s: f32, %n: i32) -> () {
  %t: f32 = fadd.f32 %s, %s
  %one: i32 = const.i32 1
  %f: f32 = loop again (%x: f32 = %s, %i: i32 = %n) {
)" + body + R"(
    %j: i32 = sub.i32 %i, %one
    if last %j {
      continue again (%y, %j)
    } else {
      br again (%y)
    }
    trap 1
  }
  store.f32 flat %b, %f
  return ()
}
)");
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) {
    return "";
  }
  EXPECT_TRUE(HoistReciprocals(*module).ok());
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return ir::Print(*module);
}

// Returns true if the text contains `what` before the loop.
bool IsBeforeLoop(const std::string& text, const std::string& what) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " is missing in\n" << text;
  return at < text.find("loop");
}

TEST(HoistReciprocalsTest, DivisorsOfParametersAndOfWhatIsInFront) {
  for (const char* divisor : {"%s", "%t"}) {
    const std::string text = Hoisted(std::string("    %y: f32 = fdiv.f32 %x, ") + divisor);
    EXPECT_TRUE(IsBeforeLoop(text, "= fdiv.f32")) << text;
    EXPECT_FALSE(IsBeforeLoop(text, "= fmul.f32")) << text;
    EXPECT_EQ(text.find("fdiv"), text.rfind("fdiv")) << text;
  }
}

// One reciprocal serves all quotients, also in a branch of the loop.
TEST(HoistReciprocalsTest, SharesOneReciprocal) {
  const std::string text = Hoisted(R"(    %q: f32 = fdiv.f32 %x, %t
    %y: f32 = if inner %i {
      %r: f32 = fdiv.f32 %q, %t
      br inner (%r)
    } else {
      br inner (%q)
    }
)");
  EXPECT_TRUE(IsBeforeLoop(text, "= fdiv.f32")) << text;
  EXPECT_EQ(text.find("fdiv"), text.rfind("fdiv")) << text;
  EXPECT_NE(text.find("fmul"), text.rfind("fmul")) << text;
}

// Quotients with a divisor that changes in the loop, and those of the math library, remain.
TEST(HoistReciprocalsTest, LeavesOthers) {
  EXPECT_EQ(Hoisted("    %y: f32 = fdiv.f32 %s, %x").find("fmul"), std::string::npos);
  EXPECT_EQ(Hoisted("    %z: f32 = fadd.f32 %x, %s\n    %y: f32 = fdiv.f32 %x, %z").find("fmul"), std::string::npos);
  for (const char* reach : {"contract ", "exact "}) {
    EXPECT_EQ(Hoisted("    %y: f32 = fdiv.f32 %x, %t", reach).find("fmul"), std::string::npos);
  }
}

}  // namespace
}  // namespace hpvm::pass
