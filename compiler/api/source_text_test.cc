// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/source_text.h"

#include <gtest/gtest.h>

#include "compiler/ir/loops_cut.h"

namespace hpvm {
namespace {

Artifact Sample() {
  Artifact artifact;
  artifact.module_name = "filters";
  artifact.function_names = {"blur", "helper"};
  artifact.files = {"blur.c", "lib/hpvm.h"};
  artifact.lines = {{40, 0, 17, 9}, {50, 1, 30, 0}, {60, 0, 0, 0}};
  return artifact;
}

// Each byte has the line of the last entry before it; without an entry the text is its offset, or empty.
TEST(PlaceTest, PlaceOf) {
  const Artifact artifact = Sample();
  const std::pair<uint32_t, const char*> kCases[] = {
      {40, "blur.c:17:9"},
      {49, "blur.c:17:9"},
      {50, "lib/hpvm.h:30"},
      {39, "byte 39 of module \"filters\""},
      {60, "byte 60 of module \"filters\""},
      {0, ""},
  };
  for (const auto& [source, want] : kCases) {
    EXPECT_EQ(PlaceOf(artifact, source), want) << source;
  }
}

// A trap is described in one sentence that contains all known facts.
TEST(PlaceTest, DescribeTrap) {
  const Artifact artifact = Sample();
  ir::TrapReport trap{.code = ir::TrapCode::kOutOfBounds,
                      .instance = {3, 0, 0},
                      .function = 0,
                      .source = 41,
                      .address = 65540,
                      .bytes = 4};
  EXPECT_EQ(DescribeTrap(trap, artifact),
            "out of bounds memory access at address 65540 (4 bytes) in instance (3, 0, 0), function \"blur\", "
            "blur.c:17:9");
  trap = {.code = ir::TrapCode::kDivideByZero, .instance = {1, 2, 3}, .function = 9, .source = 0, .address = 0};
  EXPECT_EQ(DescribeTrap(trap, artifact), std::string(ir::Name(trap.code)) + " in instance (1, 2, 3)");
  // A loop that the driver cut off is not attributed to an instance.
  trap.code = ir::kLoopsCut;
  EXPECT_EQ(DescribeTrap(trap, artifact), ir::Name(trap.code));
}

}  // namespace
}  // namespace hpvm
