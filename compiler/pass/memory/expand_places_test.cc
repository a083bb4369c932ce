// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/expand_places.h"

#include <gtest/gtest.h>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/stack_values.h"

namespace hpvm::pass {
namespace {

// Returns a kernel with the buffer %b and the number %n; the frame's 64 bytes begin at %base.
ir::Module Kernel(const std::string& body) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nglobal mut i32 0x440\nstack_pointer g0\nstack_frame 1024 1088 4\n"
      "param buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%b: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n%two: i32 = const.i32 2\n"
      "%three: i32 = const.i32 3\n%seven: i32 = const.i32 7\n%fp: i32 = global_get.i32 g0\n%size: i32 = const.i32 64\n"
      "%base: i32 = sub.i32 %fp, %size\n%low: i32 = and.i32 %n, %three\n%few: i32 = and.i32 %n, %seven\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  return *module;
}

std::vector<uint32_t> Run(const ir::Module& module, uint64_t n) {
  std::vector<uint32_t> words(8, 9);
  ir::Launch launch;
  launch.arguments = {{reinterpret_cast<uint8_t*>(words.data()), 32, 0}, {nullptr, 0, n}};
  const StatusOr<ir::TrapReport> trap = ir::Interpret(module, launch);
  EXPECT_TRUE(trap.ok() && trap->code == ir::TrapCode::kNone) << n;
  return words;
}

bool Expands(const std::string& body) {
  ir::Module module = Kernel(body);
  return ExpandPlaces(module);
}

// Returns true if accesses became values; expects that the kernel behaves as before.
bool Dissolves(const std::string& body) {
  const ir::Module module = Kernel(body);
  ir::Module expanded = module;
  if (!ExpandPlaces(expanded)) {
    return false;
  }
  EXPECT_TRUE(ir::Verify(expanded).empty()) << ToString(ir::Verify(expanded)) << ir::Print(expanded);
  ir::Module values = expanded;
  StackValues(values);
  EXPECT_TRUE(ir::Verify(values).empty()) << ToString(ir::Verify(values)) << ir::Print(values);
  for (const uint64_t n : {0, 1, 2, 3, 4, 5, 6, 7, 8, 0x7fffffff}) {
    EXPECT_EQ(Run(module, n), Run(expanded, n)) << n;
    EXPECT_EQ(Run(module, n), Run(values, n)) << n;
  }
  return !values.stack_frame.has_value();
}

// Computes the address of element `index` of an array at %base as %`name`.
std::string Place(const std::string& name, const std::string& index, const std::string& shift = "%two") {
  return "%o" + name + ": i32 = shl.i32 " + index + ", " + shift + "\n%" + name + ": i32 = add.i32 %base, %o" + name +
         "\n";
}

TEST(ExpandPlaces, LoadsAndStoresOfFewPlaces) {
  EXPECT_TRUE(
      Dissolves(Place("p", "%low") + Place("q", "%few") +
                "store.i32 stack %p, %n\nstore.i32 stack %q + 16, %three\n%v: i32 = load.i32 stack %q\n"
                "%w: i32 = load.i32 stack %p + 20\nstore.i32 param(0) %zero, %v\nstore.i32 param(0) %zero + 4, %w"));
}

TEST(ExpandPlaces, FieldsOfRecords) {
  EXPECT_TRUE(Dissolves(Place("p", "%low", "%three") +
                        "store.i32 stack %p + 4, %n\n%v: i32 = load.i32 stack %p\n%w: i32 = load.i32 stack %p + 4\n"
                        "store.i32 param(0) %zero, %v\nstore.i32 param(0) %zero + 4, %w"));
}

TEST(ExpandPlaces, SixteenBytesAreWords) {
  EXPECT_TRUE(Dissolves("store128 stack %base + 16, %n, %two, %three, %zero\n" + Place("p", "%few") +
                        "%v: i32 = load.i32 stack %p\n%a: i32, %c: i32, %d: i32, %e: i32 = load128 stack %base + 16\n"
                        "store128 param(0) %zero, %a, %c, %d, %v\nstore.i32 param(0) %zero + 16, %e"));
  EXPECT_TRUE(Dissolves("%sixteen: i32 = const.i32 4\n" + Place("p", "%low", "%sixteen") +
                        "store128 stack %p, %n, %two, %three, %few\n%v: i32 = load.i32 stack %base + 28\n"
                        "store.i32 param(0) %zero, %v"));
}

TEST(ExpandPlaces, EightBytesBesideWords) {
  EXPECT_TRUE(
      Dissolves("%wide: i64 = extend_s.i32 %n\n%k: i64 = const.i64 0x123456789\n%x: i64 = mul.i64 %wide, %k\n"
                "store.i64 stack %base, %x\nstore.i64 stack %base + 8, %wide\n" +
                Place("p", "%low") +
                "%v: i32 = load.i32 stack %p\n%y: f64 = load.f64 stack %base\nstore.f64 stack %base + 8, %y\n"
                "%z: i64 = load.i64 stack %base + 8\nstore.i32 param(0) %zero, %v\n"
                "store.i64 param(0) %zero + 8, %z"));
}

TEST(ExpandPlaces, NarrowStores) {
  EXPECT_TRUE(
      Dissolves("store.i32 w1 stack %base, %n\n" + Place("p", "%low") +
                "store.i32 w1 stack %p, %n\n%v: i32 = load.i32 w1 signed stack %p\nstore.i32 param(0) %zero, %v"));
}

TEST(ExpandPlaces, LeavesAlone) {
  const std::string use = "%v: i32 = load.i32 stack %p\nstore.i32 param(0) %zero, %v";
  EXPECT_TRUE(Dissolves(Place("p", "%few") + use));
  // Too many places; any place; a place that may lie outside; bytes within words.
  EXPECT_FALSE(Expands("%k: i32 = const.i32 15\n%many: i32 = and.i32 %n, %k\n" + Place("p", "%many") + use));
  EXPECT_FALSE(Expands(Place("p", "%n") + use));
  EXPECT_FALSE(Expands(Place("p", "%few") + "%v: i32 = load.i32 stack %p + 36\nstore.i32 param(0) %zero, %v"));
  EXPECT_FALSE(Expands(Place("p", "%few", "%zero") + use));
}

}  // namespace
}  // namespace hpvm::pass
