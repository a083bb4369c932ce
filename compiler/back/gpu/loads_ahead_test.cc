// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/loads_ahead.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

// For the outermost loop of a kernel that sums what `body` reads into %x, i32, from buffer "a" at %i.
uint32_t Together(const std::string& body, bool is_checked = false) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nuses separate_buffers\nparam buffer inout \"a\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n%four: i32 = const.i32 4\n"
      "%sum: i32 = loop b0 (%i: i32 = %zero, %s: i32 = %zero) {\n" +
      body +
      "%t: i32 = add.i32 %s, %x\n%j: i32 = add.i32 %i, %four\n%c: i32 = lt_u.i32 %j, %n\nif b1 %c {\n"
      "continue b0 (%j, %t)\n} else {\nleave b1 ()\n}\nleave b0 (%t)\n}\nstore.i32 param(0) %zero, %sum\nreturn "
      "()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  const ir::Function& f = module->function(module->entry);
  uint32_t together = 0;
  ir::ForEachOp(f, [&](ir::OpId id) {
    if (f.op(id).code == ir::Opcode::kLoop && together == 0) {
      together = IterationsTogether(f, id, [&](ir::OpId) { return !is_checked; });
    }
  });
  return together;
}

std::string Loads(int count) {
  std::string body = "%x0: i32 = load.i32 param(0) %i\n";
  for (int i = 1; i < count; ++i) {
    const std::string now = std::to_string(i), before = std::to_string(i - 1);
    body += "%l" + now + ": i32 = load.i32 param(0) %i + " + std::to_string(4 * i) + "\n%x" + now +
            ": i32 = add.i32 %x" + before + ", %l" + now + "\n";
  }
  return body + "%x: i32 = add.i32 %x" + std::to_string(count - 1) + ", %four\n";
}

TEST(LoadsAheadTest, AsManyAsLoadsAndOperationsAllow) {
  EXPECT_EQ(Together(Loads(1)), 4u);
  EXPECT_EQ(Together(Loads(4)), 4u);
  EXPECT_EQ(Together(Loads(5)), 2u);
  EXPECT_EQ(Together(Loads(8)), 2u);
  EXPECT_EQ(Together(Loads(9)), 1u);
  std::string long_body = Loads(1);
  for (int i = 0; i < 60; ++i) {
    long_body += "%y" + std::to_string(i) + ": i32 = mul.i32 %x, %four\n";
  }
  EXPECT_EQ(Together(long_body), 2u);
}

TEST(LoadsAheadTest, OthersStay) {
  EXPECT_EQ(Together("%x: i32 = mul.i32 %i, %i\n"), 1u);  // Nothing to wait for.
  EXPECT_EQ(Together(Loads(1), /*is_checked=*/true), 1u);
  EXPECT_EQ(Together(Loads(1) + "if b7 %x {\nleave b0 (%s)\n} else {\nleave b7 ()\n}\n"), 1u);  // It may end early.
  EXPECT_EQ(Together(Loads(1) + "block b8 () {\nif b7 %x {\nleave b8 ()\n} else {\nleave b7 ()\n}\nleave b8 ()\n}\n"),
            4u);
  EXPECT_EQ(Together("%x: i32 = atomic_add.i32 param(0) %i, %four\n"), 1u);
  EXPECT_EQ(Together("%x: i32 = loop b5 (%k: i32 = %zero) {\n%y: i32 = load.i32 param(0) %k\nleave b5 (%y)\n}\n"), 1u);
}

}  // namespace
}  // namespace hpvm::gpu
