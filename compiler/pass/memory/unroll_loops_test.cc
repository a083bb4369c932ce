// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/unroll_loops.h"

#include <gtest/gtest.h>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/promote_stack.h"

namespace hpvm::pass {
namespace {

struct Counts {
  size_t loops = 0, stores = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

// Counts operations in a kernel with the buffer %b and the number %n after unrolling, and checks that it behaves as
// before. The frame of 64 bytes begins at %fp.
Counts Unrolled(const std::string& body) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nstack_frame 1024 1088 4\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%b: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n%one: i32 = const.i32 1\n"
      "%two: i32 = const.i32 2\n%four: i32 = const.i32 4\n%fp: i32 = const.i32 1024\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  ir::Module unrolled = *module;
  EXPECT_TRUE(UnrollLoops(unrolled).ok());
  EXPECT_TRUE(ir::Verify(unrolled).empty()) << ToString(ir::Verify(unrolled)) << ir::Print(unrolled);
  for (const uint64_t n : {0, 1, 3, 9}) {
    std::vector<uint32_t> words[2];
    for (int which = 0; which < 2; ++which) {
      words[which].assign(64, 7);
      ir::Launch launch;
      launch.arguments = {{reinterpret_cast<uint8_t*>(words[which].data()), 256, 0}, {nullptr, 0, n}};
      const StatusOr<ir::TrapReport> trap = ir::Interpret(which == 0 ? *module : unrolled, launch);
      EXPECT_TRUE(trap.ok() && trap->code == ir::TrapCode::kNone) << n;
    }
    EXPECT_EQ(words[0], words[1]) << n;
  }
  Counts counts;
  const ir::Function& entry = unrolled.function(unrolled.entry);
  ir::ForEachOp(entry, [&](ir::OpId id) {
    counts.loops += entry.op(id).code == ir::Opcode::kLoop ? 1 : 0;
    counts.stores += entry.op(id).code == ir::Opcode::kStore ? 1 : 0;
  });
  return counts;
}

// do { stack[i] = n + i; i += `step` } while (i < `end`), with code before the test and after it.
std::string Loop(const std::string& end, const std::string& step = "%one", const std::string& before = "",
                 const std::string& behind = "") {
  return "%last: i32 = loop b0 (%i: i32 = %zero) {\n%o: i32 = shl.i32 %i, %two\n%p: i32 = add.i32 %fp, %o\n"
         "%v: i32 = add.i32 %n, %i\nstore.i32 stack %p, %v\n" +
         before + "%j: i32 = add.i32 %i, " + step + "\n%end: i32 = const.i32 " + end +
         "\n%c: i32 = lt_u.i32 %j, %end\nif b1 %c {\ncontinue b0 (%j)\n} else {\nbr b1 ()\n}\n" + behind +
         "br b0 (%v)\n}\n%back: i32 = load.i32 stack %fp + 8\nstore.i32 param(0) %zero, %last\n"
         "store.i32 param(0) %four, %back";
}

TEST(UnrollLoopsTest, ConstantTrips) {
  EXPECT_EQ(Unrolled(Loop("5")), (Counts{0, 5 + 2}));
  EXPECT_EQ(Unrolled(Loop("0")), (Counts{0, 1 + 2}));
  EXPECT_EQ(Unrolled(Loop("9", "%four")), (Counts{0, 3 + 2}));
}

TEST(UnrollLoopsTest, OthersStay) {
  EXPECT_EQ(Unrolled(Loop("16", "%s", "%s: i32 = or.i32 %n, %one\n")).loops, 1u);
  EXPECT_EQ(Unrolled("%x: i32 = loop b0 (%i: i32 = %n) {\nstore.i32 stack %fp, %i\nif b1 %i {\n"
                     "%j: i32 = sub.i32 %i, %one\ncontinue b0 (%j)\n} else {\nbr b1 ()\n}\nbr b0 (%i)\n}\n"
                     "store.i32 param(0) %zero, %x"),
            (Counts{1, 2}));
}

// A nested if whose condition is unknown remains; one whose condition is known dissolves.
TEST(UnrollLoopsTest, ChoicesWithin) {
  EXPECT_EQ(
      Unrolled(Loop("4", "%one", "if b2 %n {\nstore.i32 stack %fp + 60, %i\nbr b2 ()\n} else {\nbr b2 ()\n}\n")).loops,
      0u);
  EXPECT_EQ(Unrolled(Loop("4", "%one",
                          "%is: i32 = eq.i32 %i, %two\nif b2 %is {\nstore.i32 stack %fp + 60, %i\nbr b2 ()\n} else {\n"
                          "br b2 ()\n}\n")),
            (Counts{0, 4 + 1 + 2}));
}

// An exit under an unknown condition: from the loop, and from an enclosing construct.
TEST(UnrollLoopsTest, WaysOut) {
  EXPECT_EQ(
      Unrolled(Loop("4", "%one", "%g: i32 = gt_u.i32 %n, %i\nif b2 %g {\nbr b0 (%n)\n} else {\nbr b2 ()\n}\n")).loops,
      0u);
  EXPECT_EQ(
      Unrolled(Loop("4", "%one", "%g: i32 = eq.i32 %n, %i\nif b2 %g {\nreturn ()\n} else {\nbr b2 ()\n}\n")).loops, 0u);
  EXPECT_EQ(Unrolled(Loop("4", "%one", "", "store.i32 stack %fp + 60, %v\n")), (Counts{0, 4 + 1 + 2}));
}

// A nested loop: both loops, or the inner one alone.
TEST(UnrollLoopsTest, Nested) {
  const auto nested = [](const std::string& outer) {
    return "%last: i32 = loop b4 (%k: i32 = %zero) {\n%m: i32 = loop b0 (%i: i32 = %zero) {\n%o: i32 = shl.i32 %i, "
           "%two\n"
           "%p: i32 = add.i32 %fp, %o\n%v: i32 = add.i32 %k, %i\nstore.i32 stack %p, %v\n%j: i32 = add.i32 %i, %one\n"
           "%c: i32 = lt_u.i32 %j, %four\nif b1 %c {\ncontinue b0 (%j)\n} else {\nbr b1 ()\n}\nbr b0 (%v)\n}\n"
           "%l: i32 = add.i32 %k, %one\n%d: i32 = lt_u.i32 %l, " +
           outer +
           "\nif b5 %d {\ncontinue b4 (%l)\n} else {\nbr b5 ()\n}\nbr b4 (%m)\n}\n"
           "store.i32 param(0) %zero, %last";
  };
  EXPECT_EQ(Unrolled(nested("%two")), (Counts{0, 8 + 1}));
  EXPECT_EQ(Unrolled(nested("%n")), (Counts{1, 4 + 1}));
}

TEST(UnrollLoopsTest, LargeOnesStay) {
  std::string much;
  for (int i = 0; i < 200; ++i) {
    much += "store.i32 stack %fp + 60, %i\n";
  }
  EXPECT_EQ(Unrolled(Loop("4", "%one", much)).loops, 1u);
  EXPECT_EQ(Unrolled("%s: i32 = loop b0 (%i: i32 = %zero) {\nstore.i32 stack %fp, %i\n%j: i32 = add.i32 %i, %one\n"
                     "%end: i32 = const.i32 33\n%c: i32 = lt_u.i32 %j, %end\nif b1 %c {\ncontinue b0 (%j)\n} else {\n"
                     "br b1 ()\n}\nbr b0 (%j)\n}\nstore.i32 param(0) %zero, %s")
                .loops,
            1u);
}

// The golden kernels behave the same afterwards.
TEST(UnrollLoopsTest, KeepsTheMeaning) {
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    ir::testing::CheckGoldenFile(path,
                                 [](const ir::Module& module, const ir::Launch& launch) -> StatusOr<ir::TrapReport> {
                                   ir::Module changed = module;
                                   PromoteStack(changed);
                                   HPVMD_RETURN_IF_ERROR(UnrollLoops(changed));
                                   return ir::Interpret(changed, launch);
                                 });
  }
}

// The path to the next iteration is in blocks, as compilers write loops that end in the middle.
TEST(UnrollLoopsTest, GoesOnInBlocks) {
  EXPECT_EQ(Unrolled("loop b0 (%i: i32 = %zero) {\n%o: i32 = shl.i32 %i, %two\n%p: i32 = add.i32 %fp, %o\n"
                     "store.i32 stack %p, %n\nblock b1 () {\nblock b2 () {\n%c: i32 = eq.i32 %i, %four\nif b3 %c {\n"
                     "br b1 ()\n} else {\nbr b3 ()\n}\nbr b2 ()\n}\n%j: i32 = add.i32 %i, %one\n"
                     "continue b0 (%j)\n}\nbr b0 ()\n}\n%back: i32 = load.i32 stack %fp + 16\n"
                     "store.i32 param(0) %zero, %back\n"),
            (Counts{0, 6}));
}

// A block whose exit depends on an unknown condition remains.
TEST(UnrollLoopsTest, KeepsBlocks) {
  EXPECT_EQ(Unrolled("loop b0 (%i: i32 = %zero) {\n%o: i32 = shl.i32 %i, %two\n%p: i32 = add.i32 %fp, %o\n"
                     "%v: i32 = block b1 () {\n%c: i32 = lt_u.i32 %i, %n\nif b2 %c {\nbr b1 (%i)\n} else {\n"
                     "br b2 ()\n}\nbr b1 (%n)\n}\nstore.i32 stack %p, %v\n%j: i32 = add.i32 %i, %one\n"
                     "%m: i32 = ne.i32 %j, %four\nif b3 %m {\ncontinue b0 (%j)\n} else {\nbr b3 ()\n}\nbr b0 ()\n"
                     "}\n%back: i32 = load.i32 stack %fp + 8\nstore.i32 param(0) %zero, %back\n"),
            (Counts{0, 5}));
}

// An inner loop ends with a constant for the outer one: rows of a triangle.
TEST(UnrollLoopsTest, LoopsInLoops) {
  EXPECT_EQ(
      Unrolled("loop b0 (%i: i32 = %zero) {\n%end: i32 = loop b1 (%k: i32 = %zero) {\n%o: i32 = shl.i32 %k, %two\n"
               "%p: i32 = add.i32 %fp, %o\nstore.i32 stack %p, %n\n%l: i32 = add.i32 %k, %one\n"
               "%c: i32 = le_u.i32 %l, %i\nif b2 %c {\ncontinue b1 (%l)\n} else {\nbr b2 ()\n}\nbr b1 (%l)\n"
               "}\n%s: i32 = shl.i32 %end, %two\n%q: i32 = add.i32 %fp, %s\nstore.i32 stack %q, %i\n"
               "%j: i32 = add.i32 %i, %one\n%d: i32 = ne.i32 %j, %four\nif b3 %d {\ncontinue b0 (%j)\n} else {\n"
               "br b3 ()\n}\nbr b0 ()\n}\n%back: i32 = load.i32 stack %fp + 8\n"
               "store.i32 param(0) %zero, %back\n"),
      (Counts{0, 15}));
}

// An inner loop that may end early has no known result.
TEST(UnrollLoopsTest, EndsEarlyInLoops) {
  EXPECT_EQ(
      Unrolled("loop b0 (%i: i32 = %zero) {\n%end: i32 = loop b1 (%k: i32 = %zero) {\n%o: i32 = shl.i32 %k, %two\n"
               "%p: i32 = add.i32 %fp, %o\nstore.i32 stack %p, %n\n%e: i32 = eq.i32 %k, %n\nif b4 %e {\n"
               "br b1 (%k)\n} else {\nbr b4 ()\n}\n%l: i32 = add.i32 %k, %one\n"
               "%c: i32 = lt_u.i32 %l, %four\nif b2 %c {\ncontinue b1 (%l)\n} else {\nbr b2 ()\n}\n"
               "br b1 (%l)\n}\n%s: i32 = shl.i32 %end, %two\n%q: i32 = add.i32 %fp, %s\n"
               "store.i32 stack %q, %i\n%j: i32 = add.i32 %i, %one\n%d: i32 = ne.i32 %j, %two\nif b3 %d {\n"
               "continue b0 (%j)\n} else {\nbr b3 ()\n}\nbr b0 ()\n}\n%back: i32 = load.i32 stack %fp + 4\n"
               "store.i32 param(0) %zero, %back\n%back3: i32 = load.i32 stack %fp + 12\n"
               "store.i32 param(0) %four, %back3\n"),
      (Counts{0, 12}));
}

// A condition that becomes known only after an inner loop is unrolled; the if remains, with the blocks in it.
TEST(UnrollLoopsTest, ChoicesThatInnerLoopsMake) {
  EXPECT_EQ(
      Unrolled("loop b0 (%i: i32 = %zero) {\n%end: i32 = loop b1 (%k: i32 = %zero) {\n%o: i32 = shl.i32 %k, %two\n"
               "%p: i32 = add.i32 %fp, %o\nstore.i32 stack %p, %n\n%l: i32 = add.i32 %k, %one\n"
               "%c: i32 = lt_u.i32 %l, %two\nif b2 %c {\ncontinue b1 (%l)\n} else {\nbr b2 ()\n}\nbr b1 (%l)\n"
               "}\n%two_it_is: i32 = eq.i32 %end, %two\n%w: i32 = if b3 %two_it_is {\n%v: i32 = block b4 () {\n"
               "%u: i32 = eq.i32 %n, %one\nif b5 %u {\nbr b4 (%i)\n} else {\nbr b5 ()\n}\nbr b4 (%n)\n}\n"
               "br b3 (%v)\n} else {\nbr b3 (%zero)\n}\n%s: i32 = shl.i32 %i, %two\n"
               "%q: i32 = add.i32 %fp, %s\nstore.i32 stack %q, %w\n%j: i32 = add.i32 %i, %one\nblock b6 () {\n"
               "%d: i32 = eq.i32 %j, %four\nif b7 %d {\nbr b6 ()\n} else {\nbr b7 ()\n}\ncontinue b0 (%j)\n}\n"
               "br b0 ()\n}\n%back: i32 = load.i32 stack %fp + 8\nstore.i32 param(0) %zero, %back\n"),
      (Counts{0, 13}));
}

}  // namespace
}  // namespace hpvm::pass
