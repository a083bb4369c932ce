// SPDX-License-Identifier: Apache-2.0
// Random kernels with one check before each loop, in the interpreter, compared with the originals.
#include <string>

#include "gtest/gtest.h"

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/tile/guard_loops.h"
#include "tests/spmd/generate.h"
#include "tests/spmd/memory.h"

namespace hpvm::spmd {
namespace {

constexpr uint64_t kStepsMax = 400'000;

// The same memory, and the same trap: a check before a loop changes nothing, whichever instance leaves its buffer.
TEST(SpmdRowsTest, GuardedLoopsAgree) {
  int guarded_loops = 0, compared = 0, trapped = 0, too_long = 0;
  for (uint64_t seed = 0; seed < 6'000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Kernel kernel = GenerateRows(seed);
    const std::vector<bool> is_unproven(kernel.module.function(kernel.module.entry).ops.size(), true);
    const std::optional<pass::CoarseModule> guarded = pass::GuardLoops(kernel.module, is_unproven, nullptr);
    if (!guarded) {
      continue;
    }
    ++guarded_loops;
    ASSERT_TRUE(ir::Verify(guarded->module).empty()) << ToText(kernel);
    const Buffers expected(kernel, true), found(kernel, true);
    const StatusOr<ir::TrapReport> want =
        ir::Interpret(kernel.module, LaunchOf(kernel, expected), {.steps_max = kStepsMax});
    const StatusOr<ir::TrapReport> got =
        ir::Interpret(guarded->module, LaunchOf(kernel, found), {.steps_max = 3 * kStepsMax});
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    if (want->code == ir::TrapCode::kStopped || got->code == ir::TrapCode::kStopped) {
      ++too_long;
      continue;
    }
    ASSERT_EQ(ir::ToString(*want, kernel.module), ir::ToString(*got, kernel.module)) << ToText(kernel);
    ASSERT_EQ(found.FindDifference(expected), "") << ToText(kernel);
    ++compared;
    trapped += want->code != ir::TrapCode::kNone ? 1 : 0;
  }
  std::printf("%d guarded, %d compared, %d of them trapped; %d too long\n", guarded_loops, compared, trapped, too_long);
  EXPECT_GT(compared, 3'000);
  EXPECT_GT(trapped, 500);
  EXPECT_GT(compared - trapped, 500);
}

}  // namespace
}  // namespace hpvm::spmd
