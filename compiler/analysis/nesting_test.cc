// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/nesting.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"

namespace hpvm::analysis {
namespace {

// A kernel whose operations are numbered in the order of the text: 0 const, 1 loop { 2 add, 3 if { 4 continue } else
// { 5 leave }, 6 leave }, 7 add, 8 return.
ir::Module Kernel() {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam i32 \"n\"\nentry f0\nfunc f0 \"f\" (%0: i32) -> () {\n%1: i32 = const.i32 1\n"
      "loop b0 (%2: i32 = %0) {\n%3: i32 = add.i32 %2, %1\nif b1 %3 {\ncontinue b0 (%3)\n} else {\nbr b1 ()\n}\n"
      "br b0 ()\n}\n%4: i32 = add.i32 %0, %1\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

struct Found {
  ir::Module module = Kernel();
  const ir::Function& f = module.function(module.entry);
  Nesting nesting{f};
  ir::OpId At(size_t i) const { return nesting.order()[i]; }
};

TEST(NestingTest, ConstructsHoldWhatStandsInThem) {
  const Found found;
  const Nesting& nesting = found.nesting;
  ASSERT_EQ(nesting.order().size(), 9u);
  const ir::OpId loop = found.At(1), choice = found.At(3);
  EXPECT_EQ(nesting.OpsOf(loop).size(), 6u);
  EXPECT_EQ(nesting.OpsOf(choice).size(), 3u);
  EXPECT_EQ(nesting.OwnerOf(found.At(5)), choice);
  EXPECT_FALSE(nesting.OwnerOf(loop).valid());
  EXPECT_EQ(nesting.DepthOf(found.At(4)), 2u);
  EXPECT_TRUE(nesting.IsIn(loop, loop));
  EXPECT_TRUE(nesting.IsIn(found.At(6), loop));
  EXPECT_FALSE(nesting.IsIn(found.At(7), loop));
  EXPECT_FALSE(nesting.IsIn(loop, choice));
}

TEST(NestingTest, PlacesInRegions) {
  const Found found;
  EXPECT_EQ(found.nesting.IndexOf(found.At(3)), 1u);
  EXPECT_EQ(found.nesting.Behind(found.At(1)), found.At(7));
  EXPECT_EQ(found.nesting.Behind(found.At(3)), found.At(6));
  EXPECT_FALSE(found.nesting.Behind(found.At(6)).valid());
}

TEST(NestingTest, RegionsEncloseThoseInThem) {
  const Found found;
  const ir::Op& choice = found.f.op(found.At(3));
  const ir::RegionId body = found.f.op(found.At(1)).body;
  EXPECT_TRUE(found.nesting.Encloses(found.f.body, choice.otherwise));
  EXPECT_TRUE(found.nesting.Encloses(body, body));
  EXPECT_FALSE(found.nesting.Encloses(choice.body, choice.otherwise));
  EXPECT_FALSE(found.nesting.Encloses(body, found.f.body));
}

// The counter belongs to the loop; the kernel's parameter has no maker.
TEST(NestingTest, ValuesAreMadeSomewhere) {
  const Found found;
  const auto result = [&](size_t i) { return found.f.op(found.At(i)).first_result; };
  const ir::OpId loop = found.At(1);
  const ir::ValueId counter = found.f.region(found.f.op(loop).body).first_param;
  EXPECT_EQ(found.nesting.MakerOf(counter), loop);
  EXPECT_TRUE(found.nesting.IsMadeIn(counter, loop));
  EXPECT_TRUE(found.nesting.IsMadeIn(result(2), loop));
  EXPECT_FALSE(found.nesting.IsMadeIn(result(0), loop));
  EXPECT_FALSE(found.nesting.IsMadeIn(result(7), loop));
  EXPECT_FALSE(found.nesting.MakerOf(found.f.region(found.f.body).first_param).valid());
}

}  // namespace
}  // namespace hpvm::analysis
