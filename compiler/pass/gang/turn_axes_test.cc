// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/turn_axes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass {
namespace {

ir::Module Parse(const std::string& body, const std::string& functions = "") {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nformat \"%d\"\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"k\" (%b: i32, %n: i32) -> () {\n%0: i32 = const.i32 0\n%1: i32 = const.i32 1\n%2: i32 = const.i32 2\n"
      "%x: i32 = instance_id.i32 %0\n" +
      body + "\nreturn ()\n}\n" + functions);
  EXPECT_TRUE(module.ok()) << module.status();
  if (body.find("print") == std::string::npos) {
    module->formats.clear();
  }
  return *std::move(module);
}

constexpr char kPlaces[] =
    "%y: i32 = instance_id.i32 %1\n%z: i32 = instance_id.i32 %2\n%w: i32 = instance_count.i32 %0\n"
    "%h: i32 = instance_count.i32 %1\n%p: i32 = mul.i32 %z, %h\n%q: i32 = add.i32 %p, %y\n%r: i32 = mul.i32 %q, %w\n"
    "%i: i32 = add.i32 %r, %x\n%o: i32 = shl.i32 %i, %2\n%v: i32 = add.i32 %i, %n\nstore.i32 param(0) %o, %v";

// The turned kernel at (y, x, z) does the same as the kernel at (x, y, z), if the extents are unchanged.
TEST(TurnAxesTest, EachInstanceDoesWhatAnotherDid) {
  const ir::Module module = Parse(kPlaces);
  const std::optional<ir::Module> turned = TurnAxes(module);
  ASSERT_TRUE(turned.has_value());
  EXPECT_TRUE(ir::Verify(*turned).empty()) << ToString(ir::Verify(*turned));
  std::vector<uint32_t> words(3 * 3 * 2), other(3 * 3 * 2);
  const auto run = [](const ir::Module& of, std::vector<uint32_t>& into, uint64_t instance) {
    ir::Launch launch;
    launch.extent = {3, 3, 2};
    launch.arguments = {{reinterpret_cast<uint8_t*>(into.data()), 4 * into.size(), 0}, {nullptr, 0, 7}};
    EXPECT_TRUE(ir::Interpret(of, launch, {.begin = instance, .end = instance + 1}).ok());
  };
  for (uint64_t z = 0; z < 2; ++z) {
    for (uint64_t y = 0; y < 3; ++y) {
      for (uint64_t x = 0; x < 3; ++x) {
        run(module, words, (z * 3 + y) * 3 + x);
        run(*turned, other, (z * 3 + x) * 3 + y);
        EXPECT_EQ(words, other) << x << " " << y << " " << z;
      }
    }
  }
}

TEST(TurnAxesTest, StaysWhereMoreTellsThePlace) {
  const std::string uses_y = "%y: i32 = instance_id.i32 %1\n";
  EXPECT_TRUE(TurnAxes(Parse(uses_y)).has_value());
  EXPECT_FALSE(TurnAxes(Parse("")).has_value());
  EXPECT_FALSE(TurnAxes(Parse(uses_y + "%g: i32 = group_id.i32 %0")).has_value());
  EXPECT_FALSE(TurnAxes(Parse(uses_y + "%g: i32 = local_id.i32 %1")).has_value());
  EXPECT_FALSE(TurnAxes(Parse(uses_y + "%g: i32 = instance_id.i32 %n")).has_value());
  EXPECT_FALSE(TurnAxes(Parse(uses_y + "print p0 (%y)")).has_value());
  const std::string plain = "func f1 \"f\" (%a: i32) -> (i32) {\nreturn (%a)\n}\n";
  const std::string tells = "func f1 \"f\" (%a: i32) -> (i32) {\n%i: i32 = instance_id.i32 %a\nreturn (%i)\n}\n";
  EXPECT_TRUE(TurnAxes(Parse(uses_y + "%c: i32 = call f1 (%y)", plain)).has_value());
  EXPECT_FALSE(TurnAxes(Parse(uses_y + "%c: i32 = call f1 (%0)", tells)).has_value());
}

}  // namespace
}  // namespace hpvm::pass
