// SPDX-License-Identifier: Apache-2.0
#include "backends/contract/copy_meter.h"

#include <gtest/gtest.h>

#include <thread>

namespace hpvm {
namespace {

constexpr uint64_t kPiece = 4 * limits::kMiB;

void Move(CopyFlow& flow, int pieces) {
  for (int i = 0; i < pieces; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    flow.Moved(kPiece);
  }
}

TEST(CopyMeterTest, MeasuresWhatFlowsBehindTheStagingMemory) {
  CopyMeter meter;
  {
    CopyFlow flow(meter, /*is_up=*/true, 10 * kPiece, 3 * kPiece, 1);
    Move(flow, 10);
  }
  EXPECT_EQ(meter.copies(), 1u);
  EXPECT_EQ(meter.sums().up.bytes, 7 * kPiece);
  EXPECT_GE(meter.sums().up.ns, 7 * 50'000);
  {
    CopyFlow flow(meter, /*is_up=*/false, 5 * kPiece, kPiece, 1);
    Move(flow, 5);
  }
  EXPECT_EQ(meter.sums().down.bytes, 4 * kPiece);
  EXPECT_EQ(meter.sums().together.bytes, 0u);
}

TEST(CopyMeterTest, SmallAndBrokenCopiesSayNothing) {
  CopyMeter meter;
  {
    CopyFlow small(meter, true, 3 * kPiece, 0, 4);
    EXPECT_EQ(CopyFlow::BusyThreads(), 0u);
    Move(small, 3);
  }
  {
    CopyFlow mostly_staged(meter, true, 6 * kPiece, 3 * kPiece, 1);
    Move(mostly_staged, 6);
  }
  {
    CopyFlow broken(meter, true, 20 * kPiece, kPiece, 1);
    Move(broken, 10);
  }
  EXPECT_EQ(meter.copies(), 0u);
}

TEST(CopyMeterTest, CopiesAtTheSameTimeAreCountedTogether) {
  CopyMeter one, two;
  {
    CopyFlow first(one, true, 8 * kPiece, 0, 1);
    CopyFlow second(two, true, 8 * kPiece, kPiece, 1);
    for (int i = 0; i < 8; ++i) {
      Move(first, 1);
      Move(second, 1);
    }
  }
  // The second copy ends first. From its first piece until then the first copy also moved seven pieces.
  EXPECT_EQ(two.sums().together.bytes, 14 * kPiece);
  EXPECT_EQ(two.sums().up.bytes, 0u);
  EXPECT_EQ(one.sums().up.bytes, 0u);
}

TEST(CopyMeterTest, SaysHowManyThreadsAreBusy) {
  CopyMeter meter;
  const uint32_t epoch = CopyFlow::Epoch();
  {
    CopyFlow first(meter, true, 8 * kPiece, 0, 8);
    EXPECT_EQ(CopyFlow::BusyThreads(), 8u);
    CopyFlow second(meter, false, 8 * kPiece, 0, 4);
    EXPECT_EQ(CopyFlow::BusyThreads(), 12u);
  }
  EXPECT_EQ(CopyFlow::BusyThreads(), 0u);
  EXPECT_EQ(CopyFlow::Epoch(), epoch + 4);
}

}  // namespace
}  // namespace hpvm
