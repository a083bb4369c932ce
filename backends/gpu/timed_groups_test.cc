// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/timed_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hpvm::gpu {
namespace {

// Launches of two sizes alternately, or all of one size, with a copy between each two.
CommandList ListOf(size_t launches, bool is_mixed) {
  CommandList list;
  for (size_t i = 0; i < launches; ++i) {
    list.commands.push_back(CopyCommand());
    list.commands.push_back(DispatchCommand{.extent = {is_mixed && i % 2 == 1 ? 1000u : 1u, 1, 1}});
  }
  return list;
}

bool IsAlone(const TimedGroups& groups, size_t index) { return groups.Begins(index) && groups.Ends(index); }

TEST(TimedGroupsTest, GroupsOfEqualLaunchesAreFull) {
  const CommandList list = ListOf(100, false);
  const TimedGroups groups(&list, 32);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(groups.Begins(i), i % 32 == 0) << i;
    EXPECT_EQ(groups.Ends(i), i % 32 == 31 || i == 99) << i;
  }
}

TEST(TimedGroupsTest, ShortListsAreTimedOneByOne) {
  const CommandList list = ListOf(64, true);
  const TimedGroups groups(&list, 1);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(IsAlone(groups, i)) << i;
  }
  EXPECT_EQ(CountLaunches(nullptr), 0u);
  EXPECT_EQ(CountLaunches(&list), 64u);
}

// A few of different launches are timed individually in each submission, and all of them within a few dozen
// submissions, even when submissions of another list come in between.
TEST(TimedGroupsTest, DifferentLaunchesAreTimedAloneInTurns) {
  const CommandList list = ListOf(700, true), other = ListOf(200, true);
  std::set<size_t> seen;
  for (int submission = 0; submission < 100; ++submission) {
    const TimedGroups groups(&list, 11);
    const TimedGroups between(&other, 4);
    size_t alone = 0, longest = 0, length = 0;
    for (size_t i = 0; i < 700; ++i) {
      ASSERT_EQ(groups.Begins(i), i == 0 || groups.Ends(i - 1));
      length = groups.Begins(i) ? 1 : length + 1;
      longest = std::max(longest, length);
      if (IsAlone(groups, i)) {
        ++alone;
        seen.insert(i);
      }
    }
    EXPECT_GE(alone, 1u);
    EXPECT_LE(alone, TimedGroups::kSampled + 2);  // Plus the remainders before and after the window.
    EXPECT_EQ(longest, 11u);
  }
  EXPECT_EQ(seen.size(), 700u);
}

}  // namespace
}  // namespace hpvm::gpu
