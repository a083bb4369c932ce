// SPDX-License-Identifier: Apache-2.0
// Random kernels in the tiles of GPUs' work items, in the interpreter, compared with running one instance at a time.
#include <chrono>
#include <string>

#include "gtest/gtest.h"

#include "compiler/ir/interpret/interpret.h"
#include "compiler/pass/pipeline.h"
#include "compiler/pass/testing/coarse_run.h"
#include "tests/spmd/generate.h"
#include "tests/spmd/memory.h"

namespace hpvm::spmd {
namespace {

constexpr uint64_t kStepsMax = 400'000;

struct Tally {
  int compared = 0, refused = 0, trapped = 0;
};

void Compare(Kernel kernel, const pass::GpuTile& tile, Tally* tally) {
  for (size_t d = 0; d < 3; ++d) {
    kernel.extent[d] -= kernel.extent[d] % tile.size[d];
  }
  if (kernel.instances() == 0) {
    return;
  }
  const Buffers expected(kernel, false), found(kernel, false);
  const StatusOr<ir::TrapReport> trap =
      ir::Interpret(kernel.module, LaunchOf(kernel, expected), {.steps_max = kStepsMax});
  ASSERT_TRUE(trap.ok()) << trap.status();
  if (trap->code == ir::TrapCode::kStopped) {
    return;
  }
  const StatusOr<ir::TrapReport> coarse =
      pass::testing::RunCoarse(kernel.module, LaunchOf(kernel, found), tile, {.steps_max = 2 * kStepsMax});
  if (!coarse.ok()) {
    ASSERT_TRUE(coarse.status().code() == absl::StatusCode::kUnimplemented ||
                coarse.status().code() == absl::StatusCode::kFailedPrecondition)
        << coarse.status();
    ++tally->refused;
    return;
  }
  ASSERT_EQ(trap->code == ir::TrapCode::kNone, coarse->code == ir::TrapCode::kNone)
      << Name(trap->code) << " / " << Name(coarse->code) << "\n"
      << ToText(kernel);
  if (trap->code != ir::TrapCode::kNone) {
    ++tally->trapped;
    return;
  }
  ASSERT_EQ(found.FindDifference(expected), "") << ToText(kernel);
  ++tally->compared;
}

// Tiles do not change results.
TEST(SpmdCoarsenTest, TilesAgree) {
  constexpr uint64_t kFirstSeed = 1;
  constexpr std::chrono::seconds kTime(10);
  const pass::GpuTile kTiles[] = {{{2, 1, 1}}, {{4, 1, 1}}, {{8, 1, 1}}, {{2, 2, 1}}, {{4, 2, 1}}, {{1, 2, 1}}};
  Tally tally;
  const auto end = std::chrono::steady_clock::now() + kTime;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + 20'000 && std::chrono::steady_clock::now() < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Kernel kernel = Generate(seed);
    ASSERT_TRUE(pass::RunCpuPipeline(kernel.module).ok());
    Compare(std::move(kernel), kTiles[seed % 6], &tally);
    if (::testing::Test::HasFatalFailure()) {
      return;
    }
  }
  std::printf("%d compared, %d refused, %d trapped\n", tally.compared, tally.refused, tally.trapped);
  EXPECT_GT(tally.compared, 100);
}

}  // namespace
}  // namespace hpvm::spmd
