// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/shared_checks.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/pass/memory/resolve_provenance.h"

namespace hpvm::pass {
namespace {

// Finds the checks of a kernel with the buffers %a and %c and the number %n, whose element n has the addresses %p and
// %q.
std::vector<SharedCheck> Checks(const std::string& body, bool is_asked = true, bool is_together = false) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer in \"a\"\nparam buffer in \"c\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %c: i32, %n: i32) -> () {\n%two: i32 = const.i32 2\n%four: i32 = const.i32 4\n"
      "%off: i32 = shl.i32 %n, %two\n%p: i32 = add.i32 %a, %off\n%q: i32 = add.i32 %c, %off\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ResolveProvenance(*module).ok());
  return FindSharedChecks(*module, std::vector<bool>(module->function(module->entry).ops.size(), is_asked), is_together)
      .checks;
}

TEST(SharedChecksTest, SeveralBuffersAndConstants) {
  const std::vector<SharedCheck> checks = Checks(
      "%v: i32 = load.i32 flat %p + 4\n%w: i32 = load.i32 flat %q\n%m: i32 = sub.i32 %q, %four\n"
      "%x: i32 = load.i32 w2 flat %m\n%y: i32 = load.i32 flat %p");
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].members.size(), 4u);
  EXPECT_EQ(checks[0].below, 4u);
  ASSERT_EQ(checks[0].bounds.size(), 2u);
  EXPECT_EQ(checks[0].bounds[0].param, 0u);
  EXPECT_EQ(checks[0].bounds[0].reach, 12u);  // From 4 below the element: 4 + 4 + 4.
  EXPECT_EQ(Checks("%v: i32 = load.i32 flat %p\n%w: i32 = load.i32 flat %p + 4")[0].bounds[0].reach, 8u);
  EXPECT_EQ(checks[0].bounds[1].param, 1u);
  EXPECT_EQ(checks[0].bounds[1].reach, 8u);
}

TEST(SharedChecksTest, OthersStayApart) {
  EXPECT_TRUE(Checks("%v: i32 = load.i32 flat %p").empty());
  EXPECT_TRUE(Checks("%v: i32 = load.i32 flat %p\n%w: i32 = load.i32 flat %q", /*is_asked=*/false).empty());
  EXPECT_TRUE(Checks("%v: i32 = load.i32 flat %p\n%w: i32 = load.i32 flat %c").empty());
  EXPECT_TRUE(Checks("%v: i32 = load.i32 flat %p\n%k: i32 = const.i32 260\n%r: i32 = add.i32 %p, %k\n"
                     "%w: i32 = load.i32 flat %r")
                  .empty());
  EXPECT_TRUE(Checks("%v: i32 = load.i32 flat %p\nif b0 %n {\n%w: i32 = load.i32 flat %q\nbr b0 ()\n} else {\n"
                     "br b0 ()\n}")
                  .empty());
}

TEST(SharedChecksTest, Together) {
  const auto apart = [](const std::string& between) {
    return Checks("%v: i32 = load.i32 flat %p\n" + between + "%w: i32 = load.i32 flat %q", true, /*is_together=*/true);
  };
  ASSERT_EQ(apart("%x: i32 = load.i32 flat %p + 8\n%s: i32 = add.i32 %v, %x\n").size(), 1u);
  // A load of another place may miss first; so may one that is too far for the same check.
  EXPECT_TRUE(apart("%x: i32 = load.i32 flat %a\n").empty());
  EXPECT_TRUE(apart("%x: i32 = load.i32 flat %p + 1024\n").empty());
  EXPECT_EQ(apart("%m: i32 = sub.i32 %q, %four\n%x: i32 = load.i32 flat %m\n")[0].from_first[1], 0xfffffffffffffffcu);
  EXPECT_TRUE(apart("%x: i32 = div_u.i32 %n, %v\n").empty());
  EXPECT_TRUE(apart("store.i32 flat %c, %v\n").empty());
  EXPECT_TRUE(apart("if b0 %n {\nbr b0 ()\n} else {\nbr b0 ()\n}\n").empty());
}

}  // namespace
}  // namespace hpvm::pass
