// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/tile/wide_loads.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

// Returns a kernel of the buffers "a" and "b", and `body`, which has the offsets %x, a multiple of 16 bytes in "a",
// and %y, a multiple of 4. The body's result %r, of the type `result`, is stored at the beginning of "b".
ir::Module Kernel(const std::string& body, const std::string& result = "i32") {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nuses separate_buffers\nparam buffer inout \"a\"\nparam buffer inout \"b\"\nparam i32 \"n\"\n"
      "entry f0\nfunc f0 \"f\" (%a: i32, %b: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n"
      "%by16: i32 = const.i32 0xf0\n%by4: i32 = const.i32 0xfc\n%eight: i32 = const.i32 8\n"
      "%x: i32 = and.i32 %n, %by16\n%y: i32 = and.i32 %n, %by4\n" +
      body + "\nstore." + result + " param(1) %zero, %r\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  return *module;
}

size_t CountOf(const ir::Module& module, ir::Opcode code) {
  const ir::Function& f = module.function(module.entry);
  size_t count = 0;
  ir::ForEachOp(f, [&](ir::OpId id) { count += f.op(id).code == code ? 1 : 0; });
  return count;
}

std::vector<uint8_t> Run(const ir::Module& module, int32_t n) {
  std::vector<uint8_t> a(512), b(16);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<uint8_t>(i * 37 + 11);
  }
  ir::Launch launch;
  launch.extent = {1, 1, 1};
  launch.arguments = {{a.data(), a.size(), 0}, {b.data(), b.size(), 0}, {nullptr, 0, static_cast<uint64_t>(n)}};
  const StatusOr<ir::TrapReport> trap = ir::Interpret(module, launch);
  EXPECT_TRUE(trap.ok()) << trap.status();
  EXPECT_EQ(trap->code, ir::TrapCode::kNone);
  return b;
}

std::optional<CoarseModule> Widen(const ir::Module& module, bool is_free = true) {
  std::optional<CoarseModule> wide =
      WidenLoads(module, std::vector<bool>(module.function(module.entry).ops.size(), is_free), nullptr);
  if (wide) {
    EXPECT_TRUE(ir::Verify(wide->module).empty()) << ToString(ir::Verify(wide->module)) << ir::Print(wide->module);
    EXPECT_TRUE(wide->needs_alignment);
    for (const int32_t n : {0, 16, 100, 240}) {
      EXPECT_EQ(Run(module, n), Run(wide->module, n)) << n;
    }
  }
  return wide;
}

// Returns the number of loads of 16 bytes that the kernel gets, minus the remaining loads.
int Wide(const std::string& body, const std::string& result = "i32", bool is_free = true) {
  const std::optional<CoarseModule> wide = Widen(Kernel(body, result), is_free);
  return wide ? static_cast<int>(CountOf(wide->module, ir::Opcode::kLoad128)) -
                    static_cast<int>(CountOf(wide->module, ir::Opcode::kLoad))
              : 0;
}

// Loads of `width` bytes at these offsets from %x, combined into %r so that their order matters.
std::string Loads(const std::string& type, const std::vector<int>& offsets, const std::string& address = "%x") {
  std::string text = "%s0: " + type + " = const." + type + " 1\n%seven: " + type + " = const." + type + " 7\n";
  for (size_t i = 0; i < offsets.size(); ++i) {
    const std::string now = std::to_string(i + 1), before = std::to_string(i);
    text += "%l" + now + ": " + type + " = load." + type + " param(0) " + address + " + " + std::to_string(offsets[i]) +
            "\n";
  }
  for (size_t i = 0; i < offsets.size(); ++i) {
    const std::string now = std::to_string(i + 1), before = std::to_string(i);
    text += "%t" + now + ": " + type + " = mul." + type + " %s" + before + ", %seven\n%s" + now + ": " + type +
            " = add." + type + " %t" + now + ", %l" + now + "\n";
  }
  return text + "%r: " + type + " = add." + type + " %s" + std::to_string(offsets.size()) + ", %seven";
}

TEST(WideLoadsTest, FourWordsAndTwoDoubleWordsInAnyOrder) {
  EXPECT_EQ(Wide(Loads("i32", {0, 4, 8, 12})), 1);
  EXPECT_EQ(Wide(Loads("i32", {12, 0, 8, 4})), 1);
  EXPECT_EQ(Wide(Loads("i32", {16, 20, 24, 28, 0, 4, 8, 12})), 2);
  EXPECT_EQ(Wide(Loads("i64", {8, 0}), "i64"), 1);
}

TEST(WideLoadsTest, OnlyAlignedOnesThatAreAllThere) {
  EXPECT_EQ(Wide(Loads("i32", {4, 8, 12, 16})), 0) << "They begin at 4.";
  EXPECT_EQ(Wide(Loads("i32", {0, 4, 8, 12}, "%y")), 0) << "Their address is a multiple of 4.";
  EXPECT_EQ(Wide(Loads("i32", {0, 4, 8})), 0);
  EXPECT_EQ(Wide(Loads("i32", {0, 4, 8, 16})), 0);
  EXPECT_EQ(Wide(Loads("i32", {0, 4, 8, 12}), "i32", false), 0) << "They have checks.";
}

TEST(WideLoadsTest, WordsOfDifferentTypesKeepTheirBits) {
  EXPECT_EQ(Wide("%p: f32 = load.f32 param(0) %x\n%q: i32 = load.i32 param(0) %x + 4\n%s: f32 = load.f32 param(0) "
                 "%x + 8\n%t: i32 = load.i32 param(0) %x + 12\n%u: i32 = reinterpret.f32 %p\n%v: i32 = reinterpret.f32 "
                 "%s\n%w: i32 = sub.i32 %u, %q\n%z: i32 = xor.i32 %w, %v\n%r: i32 = sub.i32 %z, %t"),
            1);
}

TEST(WideLoadsTest, NothingMovesOverAStoreOrABranch) {
  const std::string half = "%l1: i32 = load.i32 param(0) %x\n%l2: i32 = load.i32 param(0) %x + 4\n";
  const std::string rest =
      "%l3: i32 = load.i32 param(0) %x + 8\n%l4: i32 = load.i32 param(0) %x + 12\n%o: i32 = sub.i32 %l1, %l2\n"
      "%p: i32 = sub.i32 %l3, %l4\n%r: i32 = xor.i32 %o, %p";
  EXPECT_EQ(Wide(half + rest), 1);
  EXPECT_EQ(Wide(half + "store.i32 param(0) %x + 8, %l1\n" + rest), 0);
  EXPECT_EQ(Wide(half + "barrier\n" + rest), 0);
  EXPECT_EQ(Wide(half + "block b0 () {\nif b1 %n {\nbr b0 ()\n} else {\nbr b1 ()\n}\nbr b0 ()\n}\n" + rest), 0);
  EXPECT_EQ(Wide(half + "%d: i32 = div_u.i32 %l1, %l2\n" + rest), 0) << "A quotient may trap.";
}

// The lowest load's address is known only after the load of the last word, which is then loaded together with the
// others; not if an operation in between needs it.
TEST(WideLoadsTest, AnAddressThatIsKnownLater) {
  const std::string copy = "%h: i32 = sub.i32 %x, %zero\n";
  const std::string late =
      "%l1: i32 = load.i32 param(0) %h\n%l2: i32 = load.i32 param(0) %h + 4\n"
      "%l3: i32 = load.i32 param(0) %h + 8\n%o: i32 = sub.i32 %l1, %l2\n"
      "%p: i32 = sub.i32 %l3, %l4\n";
  const std::string early = "%l4: i32 = load.i32 param(0) %x + 12\n";
  EXPECT_EQ(Wide(early + copy + late + "%r: i32 = xor.i32 %o, %p"), 1);
  EXPECT_EQ(
      Wide(early + "%q: i32 = mul.i32 %l4, %l4\n" + copy + late + "%s: i32 = xor.i32 %o, %p\n%r: i32 = add.i32 %s, %q"),
      0);
}

TEST(WideLoadsTest, WhatStandsForTheOriginal) {
  const ir::Module module = Kernel(Loads("i32", {12, 0, 8, 4}));
  const ir::Function& f = module.function(module.entry);
  CoarseModule tile;
  tile.module = module;
  tile.group = {16, 16, 1};
  tile.factors = {{2, 2}};
  tile.original.resize(f.ops.size());
  tile.lane.resize(f.ops.size());
  ir::OpId lowest;
  ir::ForEachOp(f, [&](ir::OpId id) {
    if (f.op(id).code == ir::Opcode::kLoad) {
      tile.original[id.index] = ir::OpId(1'000u + static_cast<uint32_t>(f.op(id).imm));
      tile.lane[id.index] = {1, 2};
      lowest = f.op(id).imm == 0 ? id : lowest;
    }
  });
  const std::optional<CoarseModule> wide = WidenLoads(module, std::vector<bool>(f.ops.size(), true), &tile);
  ASSERT_TRUE(wide);
  EXPECT_EQ(wide->group, tile.group);
  EXPECT_EQ(wide->factors, tile.factors);
  const ir::Function& made = wide->module.function(wide->module.entry);
  ir::ForEachOp(made, [&](ir::OpId id) {
    if (made.op(id).code == ir::Opcode::kLoad128) {
      EXPECT_EQ(wide->original[id.index], ir::OpId(1'000u));
      EXPECT_EQ(wide->lane[id.index], (std::array<uint8_t, 2>{1, 2}));
    }
  });
  tile.computed[0] = f.region(f.body).first_param;
  EXPECT_FALSE(WidenLoads(module, std::vector<bool>(f.ops.size(), true), &tile));
}

}  // namespace
}  // namespace hpvm::pass
