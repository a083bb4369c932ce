// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/testing/random_kernel.h"

#include <gtest/gtest.h>

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"

namespace hpvm {

ir::Module BoundsKernel(const std::string& body, bool is_separate) {
  const bool has_group = body.find("local_alloc") != std::string::npos;
  std::string text = "module \"m\"\n" + std::string(has_group ? "uses group_memory\n" : "") +
                     (is_separate ? "uses separate_buffers\n" : "") +
                     "param buffer inout \"b\"\nparam i32 \"n\"\nparam i32 \"m\"\nentry f0\n"
                     "func f0 \"k\" (%b: i32, %n: i32, %m: i32) -> () {\n";
  for (int i = 0; i < 10; ++i) {
    text += " %c" + std::to_string(i) + ": i32 = const.i32 " + std::to_string(i) + "\n";
  }
  text += " %ones: i32 = const.i32 -1\n %fours: i32 = const.i32 -4\n";
  text += " %x: i32 = instance_id.i32 %c0\n %y: i32 = instance_id.i32 %c1\n" + body + " return ()\n}\n";
  StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module)) << text;
  return *module;
}

}  // namespace hpvm
