// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/linear_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"

namespace hpvm::analysis {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Returns the form of the last value of a function of two i32s, %0 and %1, whose values are numbered.
LinearForm Form(const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam i32 \"a\"\nparam i32 \"b\"\nentry f0\nfunc f0 \"f\" (%0: i32, %1: i32) -> () {\n"
      "%2: i32 = const.i32 2\n%3: i32 = const.i32 -3\n" +
      body + "return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  const ir::Function& function = module->function(module->entry);
  return LinearForms(function).Of(ir::ValueId(function.values.size() - 1));
}

TEST(LinearFormTest, SumsAndProducts) {
  const LinearForm form = Form(
      "%4: i32 = shl.i32 %0, %2\n%5: i32 = add.i32 %4, %3\n%6: i32 = mul.i32 %5, %2\n"
      "%7: i32 = sub.i32 %1, %6\n");
  EXPECT_THAT(form.terms, ElementsAre(Pair(0, 0xfffffff8u), Pair(1, 1)));
  EXPECT_EQ(form.constant, 6u);
}

TEST(LinearFormTest, TermsMeet) {
  const LinearForm form = Form("%4: i32 = add.i32 %0, %1\n%5: i32 = add.i32 %4, %0\n%6: i32 = sub.i32 %5, %1\n");
  EXPECT_THAT(form.terms, ElementsAre(Pair(0, 2)));
  EXPECT_THAT(Form("%4: i32 = sub.i32 %0, %0\n").terms, IsEmpty());
}

TEST(LinearFormTest, OthersAreTerms) {
  EXPECT_THAT(Form("%4: i32 = mul.i32 %0, %1\n").terms, ElementsAre(Pair(4, 1)));
  EXPECT_THAT(Form("%4: i32 = shl.i32 %2, %0\n").terms, ElementsAre(Pair(4, 1)));
  EXPECT_THAT(Form("%4: i32 = xor.i32 %0, %2\n%5: i32 = shl.i32 %4, %2\n").terms, ElementsAre(Pair(4, 4)));
}

}  // namespace
}  // namespace hpvm::analysis
