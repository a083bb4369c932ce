// SPDX-License-Identifier: Apache-2.0
#include "base/thread_watch.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace hpvm {
namespace {

class ThreadWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetOnSlowItem([this](const SlowItem& item) { told_.push_back(item); });
  }
  void TearDown() override { SetOnSlowItem(nullptr); }

  // Uses that much of this thread's processor time.
  static void Compute(Duration time) {
    timespec start{}, now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do {
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (std::chrono::seconds(now.tv_sec - start.tv_sec) + Duration(now.tv_nsec - start.tv_nsec) < time);
  }

  std::vector<SlowItem> told_;
};

TEST_F(ThreadWatchTest, TellsWhatTookLong) {
  {
    WatchedItem item("grpc", "/hpvm.v1.Hpvm/Run");
    item.SetTenant("ann");
    Compute(std::chrono::milliseconds(8));
  }
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_STREQ(told_[0].thread, "grpc");
  EXPECT_STREQ(told_[0].item, "/hpvm.v1.Hpvm/Run");
  EXPECT_EQ(told_[0].tenant, "ann");
  EXPECT_GE(told_[0].spent, std::chrono::milliseconds(8));
  { const WatchedItem item("grpc", "short", "ann"); }
  EXPECT_EQ(told_.size(), 1u);
}

// A thread that waits, or that others keep off the processor, is not slow.
TEST_F(ThreadWatchTest, WaitingIsNotTime) {
  const WatchedItem item("hub", "event");
  {
    const WatchedItem inner("hub", "sleep");
    const WatchedHold hold("core lock");
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  EXPECT_TRUE(told_.empty());
}

TEST_F(ThreadWatchTest, InnerItemsAreNotToldTwice) {
  {
    const WatchedItem outer("grpc", "outer", "ann");
    {
      const WatchedItem inner("grpc", "inner", "bob");
      Compute(std::chrono::milliseconds(10));
    }
    Compute(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_STREQ(told_[0].item, "inner");
}

// Tests can see whether a thread is watched at all.
TEST_F(ThreadWatchTest, TellsFromWhatItIsTo) {
  SetOnSlowItem([this](const SlowItem& item) { told_.push_back(item); }, Duration{1});
  {
    const WatchedItem item("hub", "event", "ann");
    Compute(Duration{1'000});
    const WatchedHold hold("core lock");
    Compute(Duration{1'000});
  }
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_STREQ(told_[0].thread, "core lock");
  EXPECT_STREQ(told_[1].item, "event");
}

TEST_F(ThreadWatchTest, HoldsAreTheirItems) {
  {
    const WatchedItem item("grpc", "/hpvm.v1.Hpvm/Submit", "ann");
    WatchedHold hold("core lock");
    Compute(std::chrono::milliseconds(8));
    hold.End();
    hold.End();  // Reported only once.
  }
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_STREQ(told_[0].thread, "core lock");
  EXPECT_STREQ(told_[0].item, "/hpvm.v1.Hpvm/Submit");
  EXPECT_EQ(told_[0].tenant, "ann");
  EXPECT_STREQ(told_[1].thread, "grpc");
  told_.clear();
  {
    const WatchedHold hold("core lock");  // The thread has no item.
    Compute(std::chrono::milliseconds(8));
  }
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_STREQ(told_[0].item, "");
}

}  // namespace
}  // namespace hpvm
