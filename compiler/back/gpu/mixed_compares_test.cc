// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/mixed_compares.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/text/text.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

// Returns the comparisons that are hidden in a loop with the counter %i, its next value %next and the numbers %m and
// %n: the opcode and the operand of each.
std::string Hidden(const std::string& body) {
  const StatusOr<ir::Module> parsed = ir::ParseModule(
      "module \"m\"\nuses separate_buffers\nparam buffer inout \"a\"\nparam i32 \"n\"\nparam i32 \"m\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %n: i32, %m: i32) -> () {\n%zero: i32 = const.i32 0\n%one: i32 = const.i32 1\n"
      "loop l0 (%i: i32 = %zero) {\n%next: i32 = add.i32 %i, %one\n" +
      body + "\nstore.i32 param(0) %zero, %x\nstore.i32 param(0) %zero, %y\ncontinue l0 (%next)\n}\nreturn ()\n}\n");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const ir::Function& f = parsed->function(parsed->entry);
  const std::vector<uint8_t> hidden = FindMixedCompares(f);
  std::string found;
  ir::ForEachOp(f, [&](ir::OpId id) {
    const ir::Op& op = f.op(id);
    if (ir::Info(op.code).family == ir::Family::kIntCompare && hidden[op.first_result.index] != 0) {
      found += std::string(ir::Info(op.code).text) + " " + std::to_string(hidden[op.first_result.index] - 1) + "; ";
    }
  });
  return found;
}

TEST(MixedComparesTest, TheUnsignedOneOfTwo) {
  EXPECT_EQ(Hidden("%x: i32 = lt_s.i32 %i, %n\n%y: i32 = gt_u.i32 %m, %i"), "gt_u 1; ");
  EXPECT_EQ(Hidden("%x: i32 = ge_u.i32 %i, %m\n%y: i32 = le_s.i32 %n, %i"), "ge_u 0; ");
  EXPECT_EQ(Hidden("%x: i32 = lt_s.i32 %next, %n\n%y: i32 = lt_u.i32 %i, %m"), "lt_u 0; ");
  EXPECT_EQ(Hidden("%x: i32 = lt_s.i32 %i, %n\n%y: i32 = lt_u.i32 %next, %m"), "lt_u 0; ");
}

TEST(MixedComparesTest, WhatTheCompilerSeesThrough) {
  EXPECT_EQ(Hidden("%k: i32 = mul.i32 %one, %i\n%x: i32 = lt_s.i32 %i, %n\n%y: i32 = gt_u.i32 %m, %k"), "gt_u 1; ");
  EXPECT_EQ(Hidden("%k: i32 = shl.i32 %i, %zero\n%x: i32 = lt_s.i32 %k, %n\n%y: i32 = gt_u.i32 %m, %i"), "gt_u 1; ");
  EXPECT_EQ(Hidden("%k: i32 = shl.i32 %i, %one\n%x: i32 = lt_s.i32 %k, %n\n%y: i32 = gt_u.i32 %m, %i"), "");
  const std::string turned = "%s: i32 = const.i32 0x80000000\n%k: i32 = xor.i32 %i, %s\n";
  EXPECT_EQ(Hidden(turned + "%x: i32 = lt_u.i32 %i, %n\n%y: i32 = lt_u.i32 %k, %m"), "lt_u 0; ");
}

TEST(MixedComparesTest, NotWhatAgreesOrIsNoCounter) {
  EXPECT_EQ(Hidden("%x: i32 = lt_s.i32 %i, %n\n%y: i32 = gt_s.i32 %m, %i"), "");
  EXPECT_EQ(Hidden("%x: i32 = lt_u.i32 %i, %n\n%y: i32 = gt_u.i32 %m, %i"), "");
  EXPECT_EQ(Hidden("%x: i32 = ne.i32 %next, %n\n%y: i32 = gt_u.i32 %m, %i"), "");
  EXPECT_EQ(Hidden("%x: i32 = lt_s.i32 %i, %n\n%y: i32 = gt_u.i32 %m, %n"), "");
}

}  // namespace
}  // namespace hpvm::gpu
