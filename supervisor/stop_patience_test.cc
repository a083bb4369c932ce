// SPDX-License-Identifier: Apache-2.0
#include "supervisor/stop_patience.h"

#include <gtest/gtest.h>

namespace hpvm::supervisor {
namespace {

using std::chrono::milliseconds;

constexpr Time kAsked = std::chrono::seconds(7);
constexpr Duration kGrace = milliseconds(100);

// Whoever used its time is not waited for; whoever got none is, for what it lacks.
TEST(StopPatienceTest, WaitsForTheStarved) {
  const StopPatience patience(kAsked, kGrace, milliseconds(1000));
  EXPECT_EQ(patience.end(), kAsked + kGrace);
  EXPECT_EQ(patience.Longer(patience.end(), milliseconds(1050)), std::nullopt);
  EXPECT_EQ(patience.Longer(patience.end(), milliseconds(1100)), std::nullopt);
  EXPECT_EQ(patience.Longer(patience.end(), milliseconds(1010)), patience.end() + milliseconds(40));
  EXPECT_EQ(patience.Longer(patience.end(), milliseconds(1049)), patience.end() + milliseconds(5));
}

// Nobody is waited for for ever, and nobody beyond the grace whose processor time says nothing.
TEST(StopPatienceTest, Ends) {
  const StopPatience patience(kAsked, kGrace, milliseconds(0));
  const Time last = patience.end() + StopPatience::kLongerMax;
  EXPECT_EQ(patience.Longer(last - milliseconds(10), milliseconds(0)), last);
  EXPECT_EQ(patience.Longer(last, milliseconds(0)), std::nullopt);
  EXPECT_EQ(patience.Longer(patience.end(), std::nullopt), std::nullopt);
  EXPECT_EQ(StopPatience(kAsked, kGrace, std::nullopt).Longer(patience.end(), milliseconds(0)), std::nullopt);
}

}  // namespace
}  // namespace hpvm::supervisor
