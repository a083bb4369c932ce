// SPDX-License-Identifier: Apache-2.0
#include "server/observe/paced_text.h"

#include <gtest/gtest.h>

namespace hpvm::server {
namespace {

// The number of texts made per second is limited; an infrequent caller gets a new one each time.
TEST(PacedTextTest, IsMadeSoOftenAndNoOftener) {
  ManualClock clock;
  clock.Advance(std::chrono::seconds(100));
  int made = 0;
  PacedText text(clock, [&] { return std::to_string(++made); });
  for (int i = 1; i <= 1'000; ++i) {
    EXPECT_EQ(text.Get(), std::to_string(std::min(i, PacedText::kPerSecondMax)));
  }
  clock.Advance(std::chrono::milliseconds(999));
  EXPECT_EQ(text.Get(), "4");
  for (int i = 0; i < 10'000; ++i) {
    clock.Advance(std::chrono::milliseconds(1));
    text.Get();
  }
  EXPECT_EQ(made, 11 * PacedText::kPerSecondMax);
  for (int i = 0; i < 10; ++i) {
    clock.Advance(std::chrono::milliseconds(300));
    const int before = made;
    text.Get();
    EXPECT_EQ(made, before + 1);
  }
}

}  // namespace
}  // namespace hpvm::server
