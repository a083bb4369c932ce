// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/check_barriers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/analysis/uniformity.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass {
namespace {

using ::testing::HasSubstr;

ir::Module Parse(const std::string& functions) {
  StatusOr<ir::Module> module =
      ir::ParseModule("module \"m\"\nuses barrier\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n" + functions);
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *module;
}

// Returns a kernel with buffer %b, scalar %n, the local id %l, zero %z and one %o.
std::string Kernel(const std::string& body) {
  return "func f0 \"kernel\" (%b: i32, %n: i32) -> () {\n %z: i32 = const.i32 0\n %o: i32 = const.i32 1\n"
         " %l: i32 = local_id.i32 %z\n" +
         body + "\n}\n";
}

struct Case {
  const char* name;
  const char* body;
  const char* branch;  // Byte of the branch in the message, or null when the kernel is accepted.
};

// Control that certainly depends on the id is refused at its byte; control that is uniform in a group, or depends on
// memory, is accepted.
TEST(CheckBarriersTest, VaryingControl) {
  const Case kCases[] = {
      {"Plain", "barrier @9\n return ()", nullptr},
      {"UniformBranch", "if b0 %n @5 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n return ()", nullptr},
      {"VaryingBranch", "if b0 %l @5 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n return ()", "byte 5."},
      {"OtherSide", "if b0 %l @5 {\n br b0 ()\n} else {\n barrier @9\n br b0 ()\n}\n return ()", "byte 5."},
      {"AfterVaryingBranch",
       "if b0 %l @5 {\n store.i32 flat %b, %l\n br b0 ()\n} else {\n br b0 ()\n}\n barrier @9\n return ()", nullptr},
      {"FromMemory",
       "%v: i32 = load.i32 flat %b\n if b0 %v @5 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n return ()",
       nullptr},
      {"EarlyReturn", "if b0 %l @5 {\n return ()\n} else {\n br b0 ()\n}\n barrier @9\n return ()", "byte 5."},
      {"UniformEarlyReturn", "if b0 %n @5 {\n return ()\n} else {\n br b0 ()\n}\n barrier @9\n return ()", nullptr},
      {"EarlyReturnBehind", "barrier @9\n if b0 %l @5 {\n return ()\n} else {\n br b0 ()\n}\n return ()", nullptr},
      {"LeaveEndsAtItsBlock",
       "block b1 () {\n if b0 %l @5 {\n br b1 ()\n} else {\n br b0 ()\n}\n br b1 ()\n}\n barrier @9\n return "
       "()",
       nullptr},
      {"LeaveUpToItsBlock",
       "block b1 () {\n if b0 %l @5 {\n br b1 ()\n} else {\n br b0 ()\n}\n barrier @9\n br b1 ()\n}\n return "
       "()",
       "byte 5."},
      {"UniformLoop",
       "loop b1 (%i: i32 = %z) {\n barrier @9\n %j: i32 = add.i32 %i, %o\n %c: i32 = lt_u.i32 %j, %n\n"
       " if b0 %c @5 {\n continue b1 (%j)\n} else {\n br b0 ()\n}\n br b1 ()\n}\n return ()",
       nullptr},
      {"LoopFromId",
       "loop b1 (%i: i32 = %l) {\n barrier @9\n %j: i32 = add.i32 %i, %o\n %c: i32 = lt_u.i32 %j, %n\n"
       " if b0 %c @5 {\n continue b1 (%j)\n} else {\n br b0 ()\n}\n br b1 ()\n}\n return ()",
       "byte 5."},
      {"AfterLoopFromId",
       "loop b1 (%i: i32 = %l) {\n %j: i32 = add.i32 %i, %o\n %c: i32 = lt_u.i32 %j, %n\n"
       " if b0 %c @5 {\n continue b1 (%j)\n} else {\n br b0 ()\n}\n br b1 ()\n}\n barrier @9\n return ()",
       nullptr},
      {"CountOfVaryingLoop",
       "%k: i32 = loop b1 (%i: i32 = %z) {\n %j: i32 = add.i32 %i, %o\n %c: i32 = lt_u.i32 %j, %l\n"
       " if b0 %c @5 {\n continue b1 (%j)\n} else {\n br b0 ()\n}\n br b1 (%j)\n}\n"
       " if b2 %k @7 {\n barrier @9\n br b2 ()\n} else {\n br b2 ()\n}\n return ()",
       "byte 7."},
      {"SameFromBothSides",
       "%k: i32 = if b1 %l @4 {\n br b1 (%n)\n} else {\n br b1 (%n)\n}\n"
       " if b0 %k @5 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n return ()",
       nullptr},
      {"MergedByBranch",
       "%k: i32 = if b1 %l @4 {\n br b1 (%z)\n} else {\n br b1 (%o)\n}\n"
       " if b0 %k @5 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n return ()",
       "byte 5."},
      {"GroupsStart",
       "%g: i32 = instance_id.i32 %z\n %s: i32 = sub.i32 %g, %l\n %c: i32 = lt_u.i32 %s, %n\n"
       " if b0 %c @5 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n return ()",
       nullptr},
      {"RoundedDown",
       "%g: i32 = instance_id.i32 %z\n %s: i32 = shr_u.i32 %g, %o\n if b0 %s @5 {\n barrier @9\n br b0 ()\n"
       "} else {\n br b0 ()\n}\n return ()",
       nullptr},
      {"Parity", "%s: i32 = and.i32 %l, %o\n if b0 %s @5 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n return ()",
       "byte 5."},
      {"Table", "block b1 () {\n block b0 () {\n br_table %l [b0, b1] () @5\n}\n barrier @9\n br b1 ()\n}\n return ()",
       "byte 5."},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ir::Module module = Parse(Kernel(c.body));
    Diagnostics diagnostics;
    CheckBarriers(module, "module \"m\"", diagnostics);
    ASSERT_EQ(diagnostics.size(), c.branch != nullptr ? 1u : 0u) << ToString(diagnostics);
    if (c.branch != nullptr) {
      EXPECT_EQ(diagnostics[0].offset, 9u);
      EXPECT_THAT(diagnostics[0].message, HasSubstr(c.branch));
    }
  }
}

// Messages use the caller's names of places.
TEST(CheckBarriersTest, NamesPlaces) {
  const ir::Module module = Parse(Kernel("if b0 %l @5 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n return ()"));
  Diagnostics diagnostics;
  CheckBarriers(module, "m", diagnostics, [](uint32_t source) { return "k.c:" + std::to_string(source); });
  ASSERT_EQ(diagnostics.size(), 1u);
  EXPECT_THAT(diagnostics[0].message, HasSubstr("A barrier at k.c:9 in function \"kernel\""));
  EXPECT_THAT(diagnostics[0].message, HasSubstr("by the branch at k.c:5."));
}

// A call counts as a barrier at its place, and parameters have the shapes of the callers' arguments.
TEST(CheckBarriersTest, Calls) {
  const std::string callee =
      "func f1 \"sync\" (%p: i32) -> () {\n if b0 %p @7 {\n barrier @9\n br b0 ()\n} else {\n br b0 ()\n}\n"
      " return ()\n}\n";
  struct Call {
    const char* body;
    std::vector<uint64_t> offsets;
  };
  const Call kCalls[] = {
      {"call f1 (%n) @3\n return ()", {}},
      {"call f1 (%l) @3\n return ()", {9}},
      {"if b1 %l @2 {\n call f1 (%n) @3\n br b1 ()\n} else {\n br b1 ()\n}\n return ()", {3}},
  };
  for (const Call& c : kCalls) {
    SCOPED_TRACE(c.body);
    const ir::Module module = Parse(Kernel(c.body) + callee);
    Diagnostics diagnostics;
    CheckBarriers(module, "m", diagnostics);
    std::vector<uint64_t> offsets;
    for (const Diagnostic& diagnostic : diagnostics) {
      offsets.push_back(diagnostic.offset.value_or(0));
    }
    EXPECT_EQ(offsets, c.offsets) << ToString(diagnostics);
  }
}

}  // namespace
}  // namespace hpvm::pass
