// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/uniformity.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"

namespace hpvm::analysis {
namespace {

// Returns true if the last value before the return is fixed. The kernel has the buffer %a and the number %n.
bool IsFixed(const std::string& body, bool of_group = false) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer inout \"a\"\nparam i32 \"n\"\nentry f0\nfunc f0 \"f\" (%a: i32, %n: i32) -> () {\n"
      "%zero: i32 = const.i32 0\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  const ir::Function& f = module->function(module->entry);
  const std::vector<ir::OpId>& ops = f.region(f.body).ops;
  return FindFixed(f, of_group)[f.op(ops[ops.size() - 2]).first_result.index];
}

TEST(FindFixedTest, WhatTheLaunchGives) {
  EXPECT_TRUE(IsFixed("%x: i32 = add.i32 %a, %n"));
  EXPECT_TRUE(IsFixed("%s: i32 = group_size.i32 %zero\n%x: i32 = mul.i32 %s, %n"));
  EXPECT_TRUE(IsFixed("%x: i32 = div_s.i32 %n, %n"));
}

TEST(FindFixedTest, IdsAreNot) {
  EXPECT_FALSE(IsFixed("%x: i32 = instance_id.i32 %zero"));
  EXPECT_FALSE(IsFixed("%x: i32 = local_id.i32 %zero", /*of_group=*/true));
  EXPECT_FALSE(IsFixed("%i: i32 = instance_id.i32 %zero\n%x: i32 = and.i32 %i, %zero"));
}

TEST(FindFixedTest, AGroupsOwn) {
  EXPECT_FALSE(IsFixed("%x: i32 = group_id.i32 %zero"));
  EXPECT_TRUE(IsFixed("%x: i32 = group_id.i32 %zero", /*of_group=*/true));
}

// Memory that other instances may write, and values that depend on the path of control, are not fixed.
TEST(FindFixedTest, MemoryAndControl) {
  EXPECT_FALSE(IsFixed("%x: i32 = load.i32 flat %a"));
  EXPECT_FALSE(IsFixed("%x: i32 = block b0 () {\nbr b0 (%n)\n}"));
}

}  // namespace
}  // namespace hpvm::analysis
