// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/resolve_provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"

namespace hpvm {
namespace {

// The text after the pass of a kernel with buffers %a and %b and a number %n, whose body is `body`.
std::string After(const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer in \"a\"\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %b: i32, %n: i32) -> () {\n" +
      body + "\n return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ResolveProvenance(*module).ok());
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return ir::Print(*module);
}

// What is computed from one parameter becomes an access of it, through sums and loops; a mixture or a plain number
// stays flat.
TEST(ResolveProvenanceTest, FindsTheBuffer) {
  struct Case {
    const char* name;
    const char* body;
    const char* want;
  };
  const Case kCases[] = {
      {"Direct", "%v: i32 = load.i32 flat %a", "param(0)"},
      {"Sum", "%p: i32 = add.i32 %n, %b\n %v: i32 = load.i32 flat %p", "param(1)"},
      {"Loop", "loop b0 (%p: i32 = %b) {\n %v: i32 = load.i32 flat %p\n %q: i32 = add.i32 %p, %v\n continue b0 (%q)\n}",
       "param(1)"},
      {"Mixture", "%p: i32 = select.i32 %n, %a, %b\n %v: i32 = load.i32 flat %p", "flat"},
      {"TwoPointers", "%p: i32 = add.i32 %a, %b\n %v: i32 = load.i32 flat %p", "flat"},
      {"Number", "%v: i32 = load.i32 flat %n", "flat"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_THAT(After(c.body), ::testing::HasSubstr(c.want));
  }
}

}  // namespace
}  // namespace hpvm
