// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/before_effects.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

// Returns a letter for each load of a kernel with the buffer %b and the number %n, in order: B before effects, else a.
std::string Loads(const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nstack_frame 1024 1088 4\nparam buffer inout \"b\"\n"
      "param i32 \"n\"\nentry f0\nfunc f0 \"f\" (%b: i32, %n: i32) -> () {\n%fp: i32 = const.i32 1024\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  const std::vector<bool> is_before = FindBeforeEffects(*module);
  std::string found;
  const ir::Function& entry = module->function(module->entry);
  ir::ForEachOp(entry, [&](ir::OpId id) {
    if (entry.op(id).code == ir::Opcode::kLoad) {
      found += is_before[id.index] ? 'B' : 'a';
    }
  });
  return found;
}

TEST(BeforeEffectsTest, InOrder) {
  EXPECT_EQ(Loads("%v: i32 = load.i32 flat %b\nstore.i32 flat %b, %v\n%w: i32 = load.i32 flat %b"), "Ba");
  EXPECT_EQ(Loads("%v: i32 = load.i32 flat %b\nstore.i32 stack %fp, %v\n%w: i32 = load.i32 flat %b"), "BB");
  EXPECT_EQ(Loads("%v: i32 = atomic_add.i32 flat %b, %n\n%w: i32 = load.i32 flat %b"), "a");
}

// A second iteration follows the effects at the end of the first.
TEST(BeforeEffectsTest, LoopsTurn) {
  const auto loop = [](const std::string& end) {
    return "loop b0 (%i: i32 = %n) {\n%v: i32 = load.i32 flat %b\n" + end +
           "if b1 %i {\ncontinue b0 (%v)\n} else {\nbr b1 ()\n}\nbr b0 ()\n}\n%w: i32 = load.i32 flat %b";
  };
  EXPECT_EQ(Loads(loop("")), "BB");
  EXPECT_EQ(Loads(loop("store.i32 flat %b, %v\n")), "aa");
  EXPECT_EQ(Loads(loop("if b2 %n {\nstore.i32 flat %b, %v\nbr b2 ()\n} else {\nbr b2 ()\n}\n")), "aa");
}

}  // namespace
}  // namespace hpvm::analysis
