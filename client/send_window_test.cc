// SPDX-License-Identifier: Apache-2.0
#include "client/send_window.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace hpvm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Cancelled = SendWindow::Cancelled;
using What = SendWindow::What;

constexpr uint64_t kFull = SendWindow::kInProgressMax;

class SendWindowTest : public testing::Test {
 protected:
  void Fill() {
    for (uint64_t call = 0; call < kFull; ++call) {
      ASSERT_TRUE(window_.Enter(call, kNever));
    }
  }
  bool HasNone(Time now) { return !window_.Next(now).has_value(); }
  void ExpectNext(Time now, What what, uint64_t call) {
    const std::optional<SendWindow::Due> due = window_.Next(now);
    ASSERT_TRUE(due.has_value());
    EXPECT_EQ(due->what, what);
    EXPECT_EQ(due->call, call);
  }

  SendWindow window_;
};

TEST_F(SendWindowTest, CallsBeyondItWaitInOrder) {
  Fill();
  EXPECT_FALSE(window_.Enter(1'000, kNever));
  EXPECT_FALSE(window_.Enter(999, kNever));
  EXPECT_TRUE(window_.HasWaiting());
  EXPECT_TRUE(HasNone(seconds(1)));
  EXPECT_EQ(window_.Wakes(seconds(1)), kNever);
  window_.Leave(5);
  EXPECT_FALSE(window_.Enter(998, kNever));  // Calls that came earlier go first.
  ExpectNext(seconds(1), What::kSend, 1'000);
  EXPECT_TRUE(HasNone(seconds(1)));
  window_.Leave(1'000);
  window_.Leave(77'777);  // Unknown calls are ignored.
  ExpectNext(seconds(1), What::kSend, 999);
  EXPECT_TRUE(HasNone(seconds(1)));
}

TEST_F(SendWindowTest, CallsThatWaitAreCancelledAtNoCost) {
  Fill();
  for (uint64_t call = 1'000; call < 11'000; ++call) {
    EXPECT_FALSE(window_.Enter(call, seconds(60)));
    EXPECT_EQ(window_.Cancel(call, seconds(1)), Cancelled::kUnsent);
  }
  EXPECT_FALSE(window_.HasWaiting());
  EXPECT_EQ(window_.Wakes(seconds(1)), kNever);  // Cancelled calls have no deadline any more.
  EXPECT_EQ(window_.Cancel(0, seconds(1)), Cancelled::kNow);
  EXPECT_EQ(window_.Cancel(0, seconds(1)), Cancelled::kEnded);  // Once.
}

TEST_F(SendWindowTest, ResetsAreFarApart) {
  Time now = seconds(10);
  uint64_t next = 0, resets = 0;
  std::vector<Time> when;
  const auto reset = [&](uint64_t call) {
    ++resets;
    when.push_back(now);
    window_.Leave(call);
  };
  // For five seconds a client begins runs and drops each of them.
  for (int step = 0; step < 50'000; ++step, now += std::chrono::microseconds(100)) {
    const uint64_t call = next++;
    window_.Enter(call, kNever);
    if (window_.Cancel(call, now) == Cancelled::kNow) {
      reset(call);
    }
    while (const std::optional<SendWindow::Due> due = window_.Next(now)) {
      ASSERT_EQ(due->what, What::kReset);
      reset(due->call);
    }
  }
  // No second has more resets than the burst and the refill of one second.
  for (size_t i = 0, begin = 0; i < when.size(); ++i) {
    while (when[i] - when[begin] >= seconds(1)) {
      ++begin;
    }
    ASSERT_LE(i - begin + 1, SendWindow::kResetsAtOnce + SendWindow::kResetsPerSecond);
  }
  EXPECT_NEAR(static_cast<double>(resets), SendWindow::kResetsAtOnce + 5 * SendWindow::kResetsPerSecond, 2);
}

TEST_F(SendWindowTest, ResetsWaitForTheirTurn) {
  Fill();
  const Time now = seconds(10);
  for (uint64_t call = 0; call < 50; ++call) {
    ASSERT_EQ(window_.Cancel(call, now), Cancelled::kNow);
  }
  EXPECT_EQ(window_.Cancel(50, now), Cancelled::kLater);
  EXPECT_EQ(window_.Cancel(51, now), Cancelled::kLater);
  EXPECT_EQ(window_.Cancel(52, now), Cancelled::kLater);
  EXPECT_EQ(window_.Cancel(50, now), Cancelled::kEnded);  // A call is reset only once.
  EXPECT_TRUE(HasNone(now));
  const Time wakes = window_.Wakes(now);
  EXPECT_GT(wakes, now);
  EXPECT_LE(wakes, now + milliseconds(11));
  window_.Leave(51);  // The call ends before its reset.
  ExpectNext(wakes, What::kReset, 50);
  EXPECT_TRUE(HasNone(wakes));
  // Calls are reset in order of their cancellation.
  EXPECT_EQ(window_.Cancel(53, wakes + milliseconds(15)), Cancelled::kLater);
  ExpectNext(wakes + milliseconds(30), What::kReset, 52);
  ExpectNext(wakes + milliseconds(30), What::kReset, 53);
  EXPECT_EQ(window_.Wakes(wakes + milliseconds(30)), kNever);
  EXPECT_EQ(window_.Cancel(12'345, now), Cancelled::kEnded);  // An unknown call.
}

TEST_F(SendWindowTest, CallsThatWaitExpire) {
  Fill();
  EXPECT_FALSE(window_.Enter(1'000, seconds(3)));
  EXPECT_FALSE(window_.Enter(1'001, seconds(2)));
  EXPECT_FALSE(window_.Enter(1'002, kNever));
  EXPECT_EQ(window_.Wakes(seconds(1)), seconds(2));
  EXPECT_TRUE(HasNone(seconds(1)));
  ExpectNext(seconds(2), What::kExpire, 1'001);
  EXPECT_EQ(window_.Wakes(seconds(2)), seconds(3));
  window_.Leave(0);
  ExpectNext(seconds(2), What::kSend, 1'000);  // Its deadline is the call's from now on.
  EXPECT_EQ(window_.Wakes(seconds(2)), kNever);
  EXPECT_EQ(window_.Cancel(1'001, seconds(2)), Cancelled::kEnded);
}

}  // namespace
}  // namespace hpvm
