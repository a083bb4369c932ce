// SPDX-License-Identifier: Apache-2.0
#include "base/edit_distance.h"

#include <gtest/gtest.h>

namespace hpvm {
namespace {

// Known pairs, including the empty word; the distance is symmetric.
TEST(EditDistanceTest, CountsEdits) {
  const struct {
    const char* a;
    const char* b;
    size_t edits;
  } cases[] = {
      {"", "", 0},         {"", "abc", 3},   {"abc", "abc", 0},      {"kitten", "sitting", 3}, {"limit", "limits", 1},
      {"tpye", "type", 1}, {"ca", "abc", 3}, {"abcdef", "badcfe", 3}};
  for (const auto& c : cases) {
    EXPECT_EQ(EditDistance(c.a, c.b), c.edits) << c.a << " " << c.b;
    EXPECT_EQ(EditDistance(c.b, c.a), c.edits) << c.b << " " << c.a;
  }
}

}  // namespace
}  // namespace hpvm
