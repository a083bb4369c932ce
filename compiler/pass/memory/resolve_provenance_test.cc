// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/resolve_provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass {
namespace {

// Returns a kernel with buffers %a and %b and a number %n, whose body is `body`, after the pass.
ir::Module Resolve(const std::string& body) {
  const bool has_group = body.find("local_alloc") != std::string::npos;
  StatusOr<ir::Module> module =
      ir::ParseModule("module \"m\"\n" + std::string(has_group ? "uses group_memory\n" : "") +
                      "param buffer in \"a\"\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
                      "func f0 \"f\" (%a: i32, %b: i32, %n: i32) -> () {\n" +
                      body + "\n return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ResolveProvenance(*module).ok());
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *module;
}
std::string After(const std::string& body) { return ir::Print(Resolve(body)); }

// An address computed from one parameter, through sums and loops, becomes an access of it; a mixture or a plain number
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
      {"AlignedDown", "%m: i32 = const.i32 0xfffffff0\n %p: i32 = and.i32 %b, %m\n %v: i32 = load.i32 flat %p",
       "load.i32 param(1)"},
      {"LowBits", "%m: i32 = const.i32 31\n %p: i32 = and.i32 %b, %m\n %v: i32 = load.i32 flat %p", "load.i32 flat"},
      {"Widened", "%w: i64 = extend_u.i32 %b\n %p: i32 = wrap.i64 %w\n %v: i32 = load.i32 flat %p",
       "load.i32 param(1)"},
      {"GroupMemory", "%g: i32 = local_alloc %n\n %p: i32 = add.i32 %g, %n\n %v: i32 = load.i32 flat %p",
       "load.i32 group"},
      {"GroupOrBuffer", "%g: i32 = local_alloc %n\n %p: i32 = select.i32 %n, %g, %b\n %v: i32 = load.i32 flat %p",
       "load.i32 flat"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_THAT(After(c.body), ::testing::HasSubstr(c.want));
  }
}

// Buffers are separate as long as addresses are used only for accesses, distances and comparisons within one buffer.
TEST(ResolveProvenanceTest, SeparateBuffers) {
  struct Case {
    const char* name;
    const char* body;
    bool want;
  };
  const Case kCases[] = {
      {"Accesses", "%p: i32 = add.i32 %n, %b\n %v: i32 = load.i32 flat %a\n store.i32 flat %p, %v", true},
      {"Walk",
       "%e: i32 = add.i32 %a, %n\n loop b0 (%p: i32 = %a) {\n %v: i32 = load.i32 flat %p\n %q: i32 = add.i32 %p, %v\n"
       " %c: i32 = lt_u.i32 %q, %e\n if b1 %c {\n continue b0 (%q)\n} else {\n br b1 ()\n}\n br b0 ()\n}",
       true},
      {"Distance", "%p: i32 = add.i32 %n, %b\n %d: i32 = sub.i32 %p, %b\n store.i32 flat %b, %d", true},
      {"NumberOnly", "%v: i32 = load.i32 flat %n", true},
      {"StoredAddress", "store.i32 flat %b, %a", false},
      {"ComparedToNumber", "%c: i32 = lt_u.i32 %a, %n\n store.i32 flat %b, %c", false},
      {"ComparedToOther", "%c: i32 = lt_u.i32 %a, %b\n store.i32 flat %b, %c", false},
      {"DistanceToOther", "%c: i32 = sub.i32 %a, %b\n store.i32 flat %b, %c", false},
      {"Widened", "%w: i64 = extend_u.i32 %b\n %p: i32 = wrap.i64 %w\n %v: i32 = load.i32 flat %p", false},
      {"Multiplied", "%c: i32 = mul.i32 %a, %n\n store.i32 flat %b, %c", false},
      {"Subtracted", "%c: i32 = sub.i32 %n, %a\n store.i32 flat %b, %c", false},
      {"Condition", "if b0 %a {\n br b0 ()\n} else {\n br b0 ()\n}", false},
      {"Mixture", "%p: i32 = select.i32 %n, %a, %b\n %v: i32 = load.i32 flat %p", false},
      {"MixedLoop",
       "loop b0 (%p: i32 = %b) {\n %v: i32 = load.i32 flat %p\n if b1 %v {\n continue b0 (%a)\n} else {\n br b1 "
       "()\n}"
       "\n br b0 ()\n}",
       false},
      {"Copied", "memory_copy %b, %a, %n", false},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(Resolve(c.body).has_separate_buffers, c.want);
  }
}

}  // namespace
}  // namespace hpvm::pass
