// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/rows/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/jobs/testing/job_writes.h"
#include "server/jobs/testing/memory_job_database.h"

namespace hpvm::server {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kNow = 1'700'000'000'000 * kMs;

// "-a" forgets job a, "~a" drops its data, "k" forgets keys.
std::vector<std::string> TextOf(const std::vector<JobWrite>& writes) {
  std::vector<std::string> text;
  for (const JobWrite& write : writes) {
    const auto* drop = std::get_if<DropJob>(&write);
    text.push_back(drop == nullptr ? "k" : (drop->forget ? "-" : "~") + drop->id);
  }
  return text;
}

FinishedJob Finished(std::string id, int64_t age_ms, uint64_t bytes, bool dropped = false) {
  return {"blue", std::move(id), kNow - age_ms * kMs, bytes, dropped};
}

struct Case {
  const char* name;
  std::vector<FinishedJob> jobs;  // Oldest first.
  RetentionLimits limits;
  size_t writes_max;
  std::string needed;
  std::vector<std::string> want;
};

const Case kCases[] = {
    {"NothingWithinLimits", {Finished("a", 10, 5), Finished("b", 5, 5)}, {2, 10, 10}, 9, "", {}},
    {"OlderThanKept", {Finished("a", 11, 5), Finished("b", 10, 5)}, {2, 10, 10}, 9, "", {"-a"}},
    {"MoreThanKept", {Finished("a", 3, 1), Finished("b", 2, 1), Finished("c", 1, 1)}, {1, 10, 10}, 9, "", {"-a", "-b"}},
    {"MoreBytesDropsTheOldest",
     {Finished("a", 3, 6), Finished("b", 2, 6), Finished("c", 1, 6)},
     {9, 10, 10},
     9,
     "",
     {"~a", "~b"}},
    {"DroppedOnesDoNotCount",
     {Finished("a", 3, 1, true), Finished("b", 2, 6), Finished("c", 1, 6)},
     {9, 10, 10},
     9,
     "",
     {"~b"}},
    {"ForgettingFreesBytesToo", {Finished("a", 30, 6), Finished("b", 2, 6)}, {9, 10, 10}, 9, "", {"-a"}},
    {"ForgottenIsNotDroppedAgain",
     {Finished("a", 30, 6), Finished("b", 2, 6), Finished("c", 1, 6)},
     {9, 10, 6},
     9,
     "",
     {"-a", "~b"}},
    {"NeededStays", {Finished("a", 30, 1), Finished("b", 30, 1)}, {9, 10, 10}, 9, "a", {"-b"}},
    {"NeededLosesWhatItHolds", {Finished("a", 30, 20)}, {9, 10, 10}, 9, "a", {"~a"}},
    {"BoundedWrites",
     {Finished("a", 30, 1), Finished("b", 30, 1), Finished("c", 30, 1)},
     {9, 10, 10},
     2,
     "",
     {"-a", "-b"}},
    {"ZeroBytesKeepsNothing", {Finished("a", 3, 1)}, {9, 10, 0}, 9, "", {"~a"}},
    {"AgeBeyondNumbers", {Finished("a", 3, 1)}, {9, UINT64_MAX, 10}, 9, "", {}},
};

// Checks which jobs are removed, in which order, for each limit and for combinations.
TEST(RetentionTest, Plan) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    TenantUse use;
    use.jobs = c.jobs.size() + 3;
    use.live = 3;
    for (const FinishedJob& job : c.jobs) {
      use.finished_bytes += job.stored_bytes;
    }
    const auto is_needed = [&](std::string_view, std::string_view id) { return id == c.needed; };
    EXPECT_THAT(TextOf(PlanRetention(use, c.jobs, c.jobs, c.limits, kNow, c.writes_max, is_needed)),
                testing::ElementsAreArray(c.want));
  }
}

// Repeated until it returns only the write for old keys, the plan brings every tenant within its limits; keys outlive
// their rows for their time and no longer.
TEST(RetentionTest, BringsADatabaseWithinItsLimits) {
  MemoryJobDatabase database;
  std::vector<WriteResult> results;
  for (int i = 0; i < 50; ++i) {
    const std::string id = "job-" + std::to_string(i);
    InsertJobs insert = MakeInsert(i % 2 == 0 ? "blue" : "red", id, "key-" + std::to_string(i), kNow + i * kMs);
    ChangeJob change = MakeChange(insert.jobs.front(), v1::JOB_STATE_SUCCEEDED);
    change.job.mutable_job()->set_ended_unix_ns(kNow + i * kMs);
    const std::vector<JobWrite> writes = {insert, change};
    ASSERT_TRUE(database.Commit(writes, &results).ok());
  }
  const RetentionLimits limits = {.kept_max = 20, .kept_ms = 1'000, .kept_bytes_max = 10'000, .key_ms = 2'000};
  const auto sweep = [&](int64_t now) {
    for (size_t count = 4; count > 1;) {
      const auto writes = PlanRetention(database, limits, now, 4, nullptr);
      ASSERT_TRUE(writes.ok());
      ASSERT_TRUE(database.Commit(*writes, &results).ok());
      count = writes->size();
      for (const WriteResult& result : results) {
        EXPECT_TRUE(result.status.ok()) << result.status;
      }
    }
  };
  sweep(kNow + 50 * kMs);
  const auto use = *database.Use();
  for (const char* tenant : {"blue", "red"}) {
    EXPECT_EQ(use.at(tenant).jobs, 20u);
    EXPECT_LE(use.at(tenant).finished_bytes, 10'000u);
    EXPECT_GT(use.at(tenant).finished_bytes, 9'000u);
  }
  EXPECT_EQ(database.FindKey("blue", "key-0")->state, v1::JOB_STATE_SUCCEEDED);
  sweep(kNow + 1'500 * kMs);
  EXPECT_TRUE(database.Use()->empty());
  EXPECT_TRUE(database.FindKey("red", "key-49").ok());
  sweep(kNow + 2'020 * kMs);
  EXPECT_TRUE(absl::IsNotFound(database.FindKey("blue", "key-0").status()));
  EXPECT_TRUE(database.FindKey("red", "key-49").ok());
}

}  // namespace
}  // namespace hpvm::server
