// SPDX-License-Identifier: Apache-2.0
#include "base/round_thread.h"

#include <atomic>
#include <latch>

#include "gtest/gtest.h"

namespace hpvm {
namespace {

constexpr Duration kLong = std::chrono::hours(24);

// A round that is due at once repeats by itself; a round that is due in a day comes when it is woken.
TEST(RoundThreadTest, GoesRoundWhenDueOrWoken) {
  std::latch third(3), fourth(4);
  RoundThread thread([&, rounds = 0]() mutable {
    ++rounds;
    if (rounds <= 3) {
      third.count_down();
    }
    if (rounds <= 4) {
      fourth.count_down();
    }
    return rounds < 3 ? Duration{0} : kLong;
  });
  third.wait();
  thread.Wake();
  fourth.wait();
}

// Waking during a round causes another one, because the change may have come too late for the current round.
TEST(RoundThreadTest, WakingDuringARoundIsNotLost) {
  std::latch is_in_round(1), is_woken(1), second(2);
  RoundThread thread([&, rounds = 0]() mutable {
    if (++rounds == 1) {
      is_in_round.count_down();
      is_woken.wait();
    }
    if (rounds <= 2) {
      second.count_down();
    }
    return kLong;
  });
  is_in_round.wait();
  thread.Wake();
  is_woken.count_down();
  second.wait();
}

// Stop does not wait for rounds due later, and no round follows it.
TEST(RoundThreadTest, Stops) {
  std::atomic<int> rounds{0};
  RoundThread thread(
      [&] {
        ++rounds;
        return Duration{0};
      },
      kLong);
  thread.Stop();
  thread.Wake();
  thread.Stop();
  EXPECT_EQ(rounds, 0);
}

}  // namespace
}  // namespace hpvm
