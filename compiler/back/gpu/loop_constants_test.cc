// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/loop_constants.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "compiler/ir/text/text.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

// Returns the numbers among 1, 2, 3 ... that a loop `body` needs in every iteration. The body may use %s, an f64, and
// the conditions %c and %d, and defines %t.
std::string Kept(const std::string& body, const std::string& before = "") {
  const StatusOr<ir::Module> parsed = ir::ParseModule(
      "module \"m\"\nuses separate_buffers\nparam buffer inout \"a\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %n: i32) -> () {\n%first: f64 = const.f64 0\n%zero: i32 = const.i32 0\n"
      "%one: i32 = const.i32 1\n" +
      before + "%r: f64 = loop l0 (%i: i32 = %n, %s: f64 = %first) {\n%c: i32 = and.i32 %i, %one\n" + body +
      "\n%j: i32 = sub.i32 %i, %one\nif e0 %j {\ncontinue l0 (%j, %t)\n} else {\nbr e0 ()\n}\nbr l0 (%t)\n}\n"
      "store.f64 param(0) %zero, %r\nreturn ()\n}\n");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const ir::Function& f = parsed->function(parsed->entry);
  const std::vector<bool> is_kept = FindLoopConstants(f);
  std::string kept;
  ir::ForEachOp(f, [&](ir::OpId id) {
    const ir::Op& op = f.op(id);
    if (op.code == ir::Opcode::kConst && is_kept[op.first_result.index]) {
      kept += std::to_string(static_cast<int>(std::bit_cast<double>(op.imm))) + " ";
    }
  });
  return kept;
}

// Returns sums of %s and the numbers from `first` to `last`: the results are %x and the number.
std::string Sums(int first, int last, const std::string& from = "%s") {
  std::string text, sum = from;
  for (int i = first; i <= last; ++i) {
    const std::string n = std::to_string(i);
    text += "%k" + n + ": f64 = const.f64 " + n + "\n%x" + n + ": f64 = fadd.f64 " + sum + ", %k" + n + "\n";
    sum = "%x" + n;
  }
  return text;
}
std::string Last(const std::string& x) { return "%t: f64 = fadd.f64 " + x + ", %s"; }

TEST(LoopConstantsTest, FromFourToSixteen) {
  EXPECT_EQ(Kept(Sums(1, 3) + Last("%x3")), "");
  EXPECT_EQ(Kept(Sums(1, 4) + Last("%x4")), "1 2 3 4 ");
  EXPECT_EQ(Kept(Sums(1, 20) + Last("%x20")), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 ");
  EXPECT_EQ(Kept(Sums(1, 4) + "%again: f64 = const.f64 2\n%y: f64 = fmul.f64 %x4, %again\n" + Last("%y")), "1 2 3 4 2 ")
      << "A number that is there twice is one.";
}

TEST(LoopConstantsTest, NotWhatStandsOutsideOrInABranch) {
  EXPECT_EQ(Kept("%t: f64 = fadd.f64 %s, %first", Sums(1, 4, "%first")), "");
  EXPECT_EQ(Kept(Sums(1, 4) + "%y: f64 = if b0 %c {\n" + Sums(5, 6, "%x4") + "br b0 (%x6)\n} else {\nbr b0 (%x4)\n}\n" +
                 Last("%y")),
            "1 2 3 4 ");
}

TEST(LoopConstantsTest, NotWhatAJumpPassesOver) {
  const std::string leaves = "if b1 %c {\nbr b0 (%x4)\n} else {\nbr b1 ()\n}\n";
  EXPECT_EQ(Kept(Sums(1, 4) + "%y: f64 = block b0 () {\n" + leaves + Sums(5, 6, "%x4") + "br b0 (%x6)\n}\n" +
                 Sums(7, 8, "%y") + Last("%x8")),
            "1 2 3 4 7 8 ");
  EXPECT_EQ(Kept(Sums(1, 4) + "if b1 %c {\nbr l0 (%x4)\n} else {\nbr b1 ()\n}\n" + Sums(5, 6, "%x4") + Last("%x6")),
            "1 2 3 4 5 6 ")
      << "An iteration that ends the loop is its last.";
  EXPECT_EQ(Kept(Sums(1, 4) + "if b1 %c {\n%g: i32 = sub.i32 %i, %one\ncontinue l0 (%g, %x4)\n} else {\nbr b1 ()\n}\n" +
                 Sums(5, 6, "%x4") + Last("%x6")),
            "1 2 3 4 ");
}

}  // namespace
}  // namespace hpvm::gpu
