// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/lane_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <span>

namespace hpvm::backends {
namespace {

class LaneThreadTest : public ::testing::Test {
 protected:
  // A submission that increments `ran_` when it runs.
  Status Submit(std::span<const TimelinePoint> waits, std::span<const TimelinePoint> signals) {
    return lane_.Submit({.waits = waits, .commands = &list_, .signals = signals});
  }
  std::unique_ptr<Timeline> NewTimeline() { return std::make_unique<Timeline>(hub_); }

  Hub hub_;
  const CommandList list_;
  std::atomic<int> ran_{0};
  LaneThread lane_{[this](const Submission&) {
    ++ran_;
    return absl::OkStatus();
  }};
};

TEST_F(LaneThreadTest, RunsInOrderOnceThePointsAreReached) {
  const auto start = NewTimeline(), done = NewTimeline();
  const TimelinePoint begin{start.get(), 1}, first{done.get(), 1}, second{done.get(), 2};
  ASSERT_TRUE(Submit({&begin, 1}, {&first, 1}).ok());
  ASSERT_TRUE(Submit({}, {&second, 1}).ok());
  EXPECT_EQ(Poll(second), PointState::kPending);
  start->Signal(1);
  EXPECT_TRUE(done->Wait(2, kNever).ok());
  EXPECT_EQ(ran_, 2);
}

// A timeline that has failed has no submission left: its owner frees everything that they name at once, including the
// timelines for which they wait. The same holds for timelines that they share with later ones.
TEST_F(LaneThreadTest, ATimelineFailsWhenNothingIsLeftForIt) {
  auto bad = NewTimeline(), never = NewTimeline(), shared = NewTimeline(), further = NewTimeline();
  const auto other = NewTimeline();
  const TimelinePoint cause{bad.get(), 1}, awaited{never.get(), 1}, first{shared.get(), 1};
  const TimelinePoint both[] = {{shared.get(), 2}, {further.get(), 1}};
  const TimelinePoint last{further.get(), 2}, apart{other.get(), 1};
  ASSERT_TRUE(Submit({&cause, 1}, {&first, 1}).ok());
  ASSERT_TRUE(Submit({&awaited, 1}, both).ok());
  ASSERT_TRUE(Submit({&awaited, 1}, {&last, 1}).ok());
  ASSERT_TRUE(Submit({}, {&apart, 1}).ok());
  bad->Fail(Aborted("Stop."));
  EXPECT_TRUE(absl::IsAborted(shared->Wait(1, kNever)));
  EXPECT_TRUE(absl::IsAborted(further->Wait(2, kNever)));
  bad.reset();
  never.reset();
  shared.reset();
  further.reset();
  EXPECT_TRUE(other->Wait(1, kNever).ok());
  EXPECT_EQ(ran_, 1);
}

TEST_F(LaneThreadTest, NothingRunsForATimelineThatHasFailed) {
  const auto bad = NewTimeline(), beside = NewTimeline();
  bad->Fail(Aborted("Stop."));
  const TimelinePoint both[] = {{bad.get(), 1}, {beside.get(), 1}};
  EXPECT_TRUE(Submit({}, both).ok());
  EXPECT_TRUE(absl::IsAborted(beside->Wait(1, kNever)));
  EXPECT_EQ(ran_, 0);
}

}  // namespace
}  // namespace hpvm::backends
