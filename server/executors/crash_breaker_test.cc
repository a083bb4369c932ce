// SPDX-License-Identifier: Apache-2.0
#include "server/executors/crash_breaker.h"

#include <gtest/gtest.h>

namespace hpvm::server {
namespace {

using std::chrono::seconds;

constexpr CrashBreaker::Limits kLimits{3, seconds(60)};
Time At(int64_t second) { return Time(seconds(1000 + second)); }

class CrashBreakerTest : public ::testing::Test {
 protected:
  void Crash(int64_t second, Duration lived = Duration{0}) { breaker_.Crashed(At(second), lived, kLimits, rng_); }
  Duration Pause(int64_t second) { return breaker_.Pause(At(second), kLimits); }

  CrashBreaker breaker_;
  SeededRng rng_{7};
};

// Fewer crashes within the window than the limit do not open the breaker.
TEST_F(CrashBreakerTest, StaysClosedBelowTheLimit) {
  for (int64_t second = 0; second < 600; second += 31) {
    Crash(second);
    EXPECT_EQ(Pause(second), Duration{0}) << second;
  }
  EXPECT_FALSE(breaker_.has_opened());
}

// The crash that reaches the limit opens it until the window has passed since the first.
TEST_F(CrashBreakerTest, OpensAtTheLimit) {
  Crash(0);
  Crash(1);
  EXPECT_EQ(Pause(1), Duration{0});
  Crash(2);
  EXPECT_EQ(Pause(2), seconds(58));
  EXPECT_EQ(Pause(59), seconds(1));
  EXPECT_EQ(Pause(60), Duration{0});
}

// There is one try after each pause; each that fails doubles the next pause, within a quarter, up to the cap.
TEST_F(CrashBreakerTest, WaitsLongerAfterEachFailedTry) {
  Crash(0), Crash(0), Crash(0);
  int64_t now = 60;
  for (const int64_t most : {120, 240, 480, 600, 600}) {
    ASSERT_EQ(Pause(now), Duration{0});
    Crash(now);
    const Duration pause = Pause(now);
    EXPECT_LE(pause, seconds(most));
    EXPECT_GE(pause, seconds(most * 3 / 4));
    now += std::chrono::ceil<seconds>(pause).count();
  }
}

// An executor that lived for a window resets the breaker; so does a long time without any.
TEST_F(CrashBreakerTest, ForgetsAfterAGoodOne) {
  Crash(0), Crash(0), Crash(0);
  Crash(150, seconds(85));
  EXPECT_EQ(Pause(150), Duration{0});
  Crash(151), Crash(152);
  EXPECT_GT(Pause(152), Duration{0});
  Crash(10'000);
  EXPECT_EQ(Pause(10'000), Duration{0});
}

// A limit that is raised meanwhile holds for later crashes.
TEST_F(CrashBreakerTest, TakesLimitsAsTheyAre) {
  CrashBreaker breaker;
  constexpr CrashBreaker::Limits kOne{1, seconds(10)};
  breaker.Crashed(At(0), Duration{0}, kOne, rng_);
  EXPECT_EQ(breaker.Pause(At(0), kOne), seconds(10));
  EXPECT_EQ(breaker.crashes(), 1u);
}

}  // namespace
}  // namespace hpvm::server
