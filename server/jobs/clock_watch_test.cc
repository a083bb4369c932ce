// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/clock_watch.h"

#include <gtest/gtest.h>

namespace hpvm::server {
namespace {

using std::chrono::hours, std::chrono::minutes, std::chrono::seconds;

constexpr uint64_t kMinuteMs = 60'000, kHourMs = 60 * kMinuteMs, kDayMs = 24 * kHourMs;
constexpr int64_t kYearNs = 365 * 86'400'000'000'000;

// Lets `time` pass, with a look every ten seconds; returns false when a jump was seen.
bool Pass(ClockWatch& watch, ManualClock& clock, Duration time) {
  bool steady = true;
  for (Duration passed{0}; passed < time; passed += seconds(10)) {
    clock.Advance(seconds(10));
    steady = !watch.Look().has_value() && steady;
  }
  return steady;
}

// After a start an age is trusted once it has passed, or an hour has.
TEST(ClockWatchTest, Starts) {
  ManualClock clock;
  ClockWatch watch(clock);
  EXPECT_FALSE(watch.Believes(kMinuteMs));
  EXPECT_TRUE(watch.Believes(0));
  EXPECT_TRUE(Pass(watch, clock, minutes(2)));
  EXPECT_TRUE(watch.Believes(kMinuteMs));
  EXPECT_FALSE(watch.Believes(kDayMs));
  EXPECT_TRUE(Pass(watch, clock, minutes(58)));
  EXPECT_TRUE(watch.Believes(kDayMs));
  EXPECT_TRUE(watch.Believes(UINT64_MAX));
}

// A jump either way is reported once, with its size; from then on an age is trusted once it has passed.
TEST(ClockWatchTest, Jumps) {
  for (const int64_t by : {int64_t{61'000'000'000}, 3'600'000'000'000, 10 * kYearNs, -61'000'000'000, -10 * kYearNs}) {
    SCOPED_TRACE(by);
    ManualClock clock;
    ClockWatch watch(clock);
    EXPECT_TRUE(Pass(watch, clock, hours(30)));
    ASSERT_TRUE(watch.Believes(kDayMs));
    clock.JumpWall(by);
    EXPECT_EQ(watch.Look(), Duration(by));
    EXPECT_EQ(watch.Look(), std::nullopt);
    EXPECT_FALSE(watch.Believes(kMinuteMs));
    EXPECT_TRUE(Pass(watch, clock, hours(23)));
    EXPECT_FALSE(watch.Believes(kDayMs));
    EXPECT_TRUE(watch.Believes(kHourMs));
    clock.JumpWall(-by);  // Setting the clock right is one more jump.
    EXPECT_EQ(watch.Look(), Duration(-by));
    EXPECT_TRUE(Pass(watch, clock, hours(23)));
    EXPECT_FALSE(watch.Believes(kDayMs));
    EXPECT_TRUE(Pass(watch, clock, hours(1)));
    EXPECT_TRUE(watch.Believes(kDayMs));
    EXPECT_FALSE(watch.Believes(UINT64_MAX));
  }
}

// Many small steps are a jump; a clock that runs a little fast or slow, as while it is corrected, has none.
TEST(ClockWatchTest, StepsAndDrift) {
  ManualClock clock;
  ClockWatch watch(clock);
  for (int i = 0; i < 30'000; ++i) {
    clock.Advance(seconds(10));
    clock.JumpWall(i < 15'000 ? 5'000'000 : -5'000'000);  // 500 parts in a million.
    ASSERT_FALSE(watch.Look().has_value()) << i;
  }
  int jumps = 0;
  for (int i = 0; i < 10; ++i) {
    clock.Advance(seconds(10));
    clock.JumpWall(20'000'000'000);
    jumps += watch.Look().has_value() ? 1 : 0;
  }
  EXPECT_EQ(jumps, 2);
}

}  // namespace
}  // namespace hpvm::server
