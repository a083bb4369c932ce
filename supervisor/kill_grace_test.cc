// SPDX-License-Identifier: Apache-2.0
#include "supervisor/kill_grace.h"

#include <gtest/gtest.h>

namespace hpvm::supervisor {
namespace {

using std::chrono::milliseconds;

constexpr Time kAsked = std::chrono::seconds(7);
constexpr Duration kGrace = milliseconds(100);

// A process that used its time gets no extension; a process that got none is given what it lacks.
TEST(KillGraceTest, WaitsForTheStarved) {
  const KillGrace patience(kAsked, kGrace, milliseconds(1000));
  EXPECT_EQ(patience.end(), kAsked + kGrace);
  EXPECT_EQ(patience.Longer(patience.end(), milliseconds(1050)), std::nullopt);
  EXPECT_EQ(patience.Longer(patience.end(), milliseconds(1100)), std::nullopt);
  EXPECT_EQ(patience.Longer(patience.end(), milliseconds(1010)), patience.end() + milliseconds(40));
  EXPECT_EQ(patience.Longer(patience.end(), milliseconds(1049)), patience.end() + milliseconds(5));
}

// No wait is endless, and there is no extension when the processor time is meaningless.
TEST(KillGraceTest, Ends) {
  const KillGrace patience(kAsked, kGrace, milliseconds(0));
  const Time last = patience.end() + KillGrace::kLongerMax;
  EXPECT_EQ(patience.Longer(last - milliseconds(10), milliseconds(0)), last);
  EXPECT_EQ(patience.Longer(last, milliseconds(0)), std::nullopt);
  EXPECT_EQ(patience.Longer(patience.end(), std::nullopt), std::nullopt);
  EXPECT_EQ(KillGrace(kAsked, kGrace, std::nullopt).Longer(patience.end(), milliseconds(0)), std::nullopt);
}

}  // namespace
}  // namespace hpvm::supervisor
