// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/promote_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

// Returns a kernel with the buffer %b and the number %n, whose frame has 32 bytes from %fp on; %p is the address of
// one of its eight words.
ir::Module Promoted(const std::string& body, const std::string& memory = "memory 65536 65536\n",
                    const std::string& functions = "") {
  StatusOr<ir::Module> module =
      ir::ParseModule("module \"m\"\n" + memory +
                      "global mut i32 0x8000\nstack_pointer g0\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
                      "func f0 \"f\" (%b: i32, %n: i32) -> () {\n%two: i32 = const.i32 2\n%seven: i32 = const.i32 7\n"
                      "%sp: i32 = global_get.i32 g0\n%size: i32 = const.i32 32\n%fp: i32 = sub.i32 %sp, %size\n"
                      "global_set.i32 g0 %fp\n%low: i32 = and.i32 %n, %seven\n%at: i32 = shl.i32 %low, %two\n"
                      "%p: i32 = add.i32 %fp, %at\n" +
                      body + "\nglobal_set.i32 g0 %sp\nreturn ()\n}\n" + functions);
  EXPECT_TRUE(module.ok()) << module.status();
  PromoteStack(*module);
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *std::move(module);
}

size_t Count(const ir::Module& module, ir::Opcode code, std::optional<ir::Space> space = std::nullopt) {
  size_t found = 0;
  const ir::Function& entry = module.function(module.entry);
  ir::ForEachOp(entry, [&](ir::OpId id) {
    found += entry.op(id).code == code && (!space || entry.op(id).space == *space) ? 1 : 0;
  });
  return found;
}

TEST(PromoteStackTest, AnArrayIsFound) {
  const ir::Module module =
      Promoted("store.i32 flat %p, %n\n%v: i32 = load.i32 flat %fp + 4\nstore.i32 param(0) %n, %v");
  ASSERT_TRUE(module.stack_frame.has_value());
  EXPECT_EQ(module.stack_frame->begin, 0x8000u - 32);
  EXPECT_EQ(module.stack_frame->end, 0x8000u);
  EXPECT_EQ(module.stack_frame->unit, 4u);
  EXPECT_EQ(Count(module, ir::Opcode::kStore, ir::Space::kStack), 1u);
  EXPECT_EQ(Count(module, ir::Opcode::kLoad, ir::Space::kStack), 1u);
  EXPECT_EQ(Count(module, ir::Opcode::kStore, ir::Space::kParam), 1u);
  EXPECT_EQ(Count(module, ir::Opcode::kGlobalGet) + Count(module, ir::Opcode::kGlobalSet), 0u);
}

TEST(PromoteStackTest, TheUnitIsThatOfTheAccesses) {
  const auto unit_of = [](const std::string& body) { return Promoted(body).stack_frame->unit; };
  EXPECT_EQ(unit_of("%v: i64 = load.i64 flat %fp + 8\nstore.i64 flat %fp, %v"), 8u);
  EXPECT_EQ(unit_of("%v: i64 = load.i64 flat %fp + 8\nstore.i32 flat %fp, %n"), 4u);
}

TEST(PromoteStackTest, WhatIsNotUnderstoodStays) {
  const struct {
    const char* name;
    const char* body;
  } kCases[] = {
      {"StoreAnywhere", "store.i32 flat %p, %n\nstore.i32 flat %n, %n"},
      {"LoadAnywhere", "store.i32 flat %p, %n\n%v: i32 = load.i32 flat %n"},
      {"LoadedPointer", "store.i32 flat %p, %n\n%q: i32 = load.i32 flat %p\n%v: i32 = load.i32 flat %q"},
      {"UnalignedQuad", "store128 flat %p + 2, %n, %n, %n, %n"},
      {"Atomic", "store.i32 flat %fp, %n\n%v: i32 = atomic_add.i32 flat %p, %n"},
      {"VariableSizeBelow",
       "store.i32 flat %p, %n\n%v: i32 = sub.i32 %fp, %at\nglobal_set.i32 g0 %v\nstore.i32 flat %v, %n"},
      {"GrowsUpwards", "%q: i32 = add.i32 %sp, %at\nstore.i32 flat %q, %n"},
      {"Copy", "memory_copy %fp, %p, %n"},
      {"CopyFromAnywhere", "memory_copy %fp, %n, %size"},
      {"Call", "store.i32 flat %p, %n\ncall f1 (%p)"},
      {"VariableSize",
       "%v: i32 = sub.i32 %fp, %at\nglobal_set.i32 g0 %v\n%g: i32 = global_get.i32 g0\nstore.i32 flat %g, %n"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const ir::Module module = Promoted(c.body, "memory 65536 65536\n",
                                       "func f1 \"g\" (%0: i32) -> () {\nstore.i32 flat %0, %0\nreturn ()\n}\n");
    EXPECT_FALSE(module.stack_frame.has_value());
    EXPECT_EQ(Count(module, ir::Opcode::kStore, ir::Space::kStack), 0u);
    EXPECT_GE(Count(module, ir::Opcode::kGlobalSet), 2u);
  }
}

TEST(PromoteStackTest, DataInTheFrameStays) {
  EXPECT_FALSE(Promoted("store.i32 flat %p, %n", "memory 65536 65536\ndata 0x7ff0 \"01\"\n").stack_frame.has_value());
  EXPECT_TRUE(Promoted("store.i32 flat %p, %n", "memory 65536 65536\ndata 0x7ff0 \"0000\"\n").stack_frame.has_value());
  EXPECT_TRUE(Promoted("store.i32 flat %p, %n", "memory 65536 65536\ndata 0x7fdf \"01\"\n").stack_frame.has_value());
}

// A table beside the stack may be read by an index that is known to stay inside the table.
TEST(PromoteStackTest, TablesAreReadBeside) {
  const std::string table = "%t: i32 = const.i32 1024\n%q: i32 = add.i32 %t, %at\n%v: i32 = load.i32 flat %q\n";
  EXPECT_TRUE(Promoted(table + "store.i32 flat %p, %v").stack_frame.has_value());
}

TEST(PromoteStackTest, SmallCopiesAreLoadsAndStores) {
  const ir::Module module =
      Promoted("%eight: i32 = const.i32 8\nmemory_copy %fp, %b, %eight\nmemory_fill %p, %n, %two");
  ASSERT_TRUE(module.stack_frame.has_value());
  EXPECT_EQ(Count(module, ir::Opcode::kLoad, ir::Space::kParam), 2u);
  EXPECT_EQ(Count(module, ir::Opcode::kStore, ir::Space::kStack), 3u);
}

TEST(PromoteStackTest, UnalignedAccessesAreCut) {
  const auto counts = [](const std::string& body) {
    const ir::Module module = Promoted(body);
    EXPECT_TRUE(module.stack_frame.has_value());
    return std::pair(Count(module, ir::Opcode::kLoad, ir::Space::kStack),
                     Count(module, ir::Opcode::kStore, ir::Space::kStack));
  };
  EXPECT_EQ(counts("%q: i32 = add.i32 %fp, %low\nstore.i32 flat %q, %n"), std::pair(size_t{0}, size_t{4}));
  EXPECT_EQ(counts("store.i32 flat %p + 2, %n"), std::pair(size_t{0}, size_t{2}));
  EXPECT_EQ(counts("%v: f64 = load.f64 flat %fp + 17"), std::pair(size_t{8}, size_t{0}));
  EXPECT_EQ(counts("%v: i64 = load.i64 w2 signed flat %fp + 1"), std::pair(size_t{2}, size_t{0}));
}

TEST(PromoteStackTest, SaysWhatIsInside) {
  const auto inside = [](const std::string& body) {
    const ir::Module module = Promoted(body);
    const std::vector<bool> is_inside = FindInsideStack(module);
    return std::count(is_inside.begin(), is_inside.end(), true);
  };
  EXPECT_EQ(inside("store.i32 flat %p, %n"), 1);
  EXPECT_EQ(inside("store.i32 flat %p + 4, %n"), 0);
  EXPECT_EQ(inside("%q: i32 = shl.i32 %n, %two\n%r: i32 = add.i32 %fp, %q\nstore.i32 flat %r, %n"), 0);
}

// The golden kernels behave the same afterwards.
TEST(PromoteStackTest, KeepsTheMeaning) {
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    ir::testing::CheckGoldenFile(path,
                                 [](const ir::Module& module, const ir::Launch& launch) -> StatusOr<ir::TrapReport> {
                                   ir::Module changed = module;
                                   PromoteStack(changed);
                                   return ir::Interpret(changed, launch);
                                 });
  }
}

}  // namespace
}  // namespace hpvm::pass
