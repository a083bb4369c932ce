// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/job_history.h"

#include <gtest/gtest.h>

#include <string>

namespace hpvm::server {
namespace {

v1::JobChange ChangeOf(const std::string& id) {
  v1::JobChange change;
  change.mutable_job()->set_id(id);
  return change;
}

void Add(JobHistory& history, const std::string& id, uint64_t bytes_max = 1 << 20) {
  history.Add(ChangeOf(id), v1::JOB_STATE_UNSPECIFIED, bytes_max);
}

// Changes come back in order, each once, from any number that the history still reaches.
TEST(JobHistoryTest, GoesOnBehindANumber) {
  JobHistory history;
  history.Keep();
  const uint64_t start = history.last_number();
  for (const char* id : {"a", "b", "c"}) {
    const uint64_t number = history.next_number();
    Add(history, id);
    EXPECT_EQ(history.last_number(), number);
  }
  std::string ids;
  uint64_t number = start;
  while (const JobHistory::Entry* entry = history.After(number)) {
    EXPECT_EQ(entry->number, number + 1);
    ids += entry->change->job().id();
    number = entry->number;
  }
  EXPECT_EQ(ids, "abc");
  EXPECT_TRUE(history.ReachesBackTo(start));
  EXPECT_TRUE(history.ReachesBackTo(number));
  EXPECT_FALSE(history.ReachesBackTo(number + 1));
  EXPECT_FALSE(history.ReachesBackTo(start - 1));
}

// The oldest entries make room for the newest; an entry larger than the limit is not kept either.
TEST(JobHistoryTest, ForgetsTheOldest) {
  JobHistory history;
  history.Keep();
  const uint64_t start = history.last_number();
  Add(history, "a");
  const size_t one = history.bytes();
  for (int i = 0; i < 100; ++i) {
    Add(history, "b", 10 * one);
    EXPECT_LE(history.bytes(), 10 * one);
  }
  EXPECT_EQ(history.size(), 10u);
  EXPECT_EQ(history.last_number(), start + 101);
  EXPECT_FALSE(history.ReachesBackTo(start + 90));
  ASSERT_TRUE(history.ReachesBackTo(start + 91));
  EXPECT_EQ(history.After(start + 91)->number, start + 92);
  Add(history, std::string(100 * one, 'x'), 10 * one);
  EXPECT_EQ(history.size(), 0u);
  EXPECT_EQ(history.bytes(), 0u);
  EXPECT_FALSE(history.ReachesBackTo(start + 101));
  EXPECT_TRUE(history.ReachesBackTo(start + 102));
  EXPECT_EQ(history.After(start + 102), nullptr);
}

// A time in which the history was not kept is a gap that no number reaches across, and no number is used twice.
TEST(JobHistoryTest, GapsAreSeen) {
  JobHistory history;
  EXPECT_FALSE(history.ReachesBackTo(0));
  history.Keep();
  Add(history, "a");
  const uint64_t last = history.last_number();
  history.Keep();  // Has no effect.
  EXPECT_TRUE(history.ReachesBackTo(last));
  history.Forget();
  EXPECT_FALSE(history.ReachesBackTo(last));
  EXPECT_EQ(history.bytes(), 0u);
  history.Keep();
  EXPECT_FALSE(history.ReachesBackTo(last));
  EXPECT_GT(history.next_number(), last + 1);
}

}  // namespace
}  // namespace hpvm::server
