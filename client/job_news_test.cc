// SPDX-License-Identifier: Apache-2.0
#include "client/job_news.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::Job JobOf(const std::string& id, v1::JobState state, uint64_t change, uint32_t attempt = 1) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
  job.set_change(change);
  job.set_attempt(attempt);
  return job;
}

v1::WatchJobsResponse Jobs(const std::vector<v1::Job>& jobs, const std::string& cursor) {
  v1::WatchJobsResponse response;
  for (const v1::Job& job : jobs) {
    *response.add_changes()->mutable_job() = job;
  }
  response.set_cursor(cursor);
  return response;
}

v1::WatchJobsResponse List(const std::vector<v1::Job>& jobs, const std::string& cursor) {
  v1::WatchJobsResponse response = Jobs(jobs, cursor);
  response.set_list_begins(true);
  response.set_list_ends(true);
  return response;
}

v1::WatchJobsResponse Gone(const std::string& id) {
  v1::WatchJobsResponse response;
  response.add_changes()->set_gone_job_id(id);
  return response;
}

class JobNewsTest : public testing::Test {
 protected:
  std::vector<std::string> Take(v1::WatchJobsResponse response) {
    std::vector<std::string> told;
    EXPECT_TRUE(news_.Take(response, [&](const v1::JobChange& change) {
      told.push_back(change.has_job() ? change.job().id() + " " + v1::JobState_Name(change.job().state()).substr(10)
                                      : change.gone_job_id() + " gone");
      return true;
    }));
    return told;
  }
  JobNews news_;
};

constexpr auto kQueued = v1::JOB_STATE_QUEUED, kRunning = v1::JOB_STATE_RUNNING, kSucceeded = v1::JOB_STATE_SUCCEEDED;

// Changes that were made while a list was built and are in it are not reported again; later changes are.
TEST_F(JobNewsTest, ListsAndChangesMeet) {
  EXPECT_THAT(Take(List({JobOf("c", kQueued, 0), JobOf("b", kRunning, 7), JobOf("a", kSucceeded, 0)}, "1")),
              ElementsAre("a SUCCEEDED", "b RUNNING", "c QUEUED"));
  EXPECT_THAT(Take(Jobs({JobOf("b", kQueued, 6), JobOf("a", kRunning, 5), JobOf("b", kRunning, 7)}, "2")), IsEmpty());
  EXPECT_EQ(news_.cursor(), "2");
  EXPECT_THAT(Take(Jobs({JobOf("c", kRunning, 8), JobOf("b", kSucceeded, 9), JobOf("b", kRunning, 7)}, "3")),
              ElementsAre("c RUNNING", "b SUCCEEDED"));
}

// A list in several responses is taken as a whole, or not at all when it broke off.
TEST_F(JobNewsTest, ListsComeInParts) {
  v1::WatchJobsResponse first = Jobs({JobOf("b", kRunning, 0)}, "");
  first.set_list_begins(true);
  EXPECT_THAT(Take(first), IsEmpty());
  EXPECT_FALSE(news_.is_listed());
  EXPECT_THAT(Take(first), IsEmpty());  // The list begins again.
  v1::WatchJobsResponse last = Jobs({JobOf("a", kRunning, 0)}, "9");
  last.set_list_ends(true);
  EXPECT_THAT(Take(last), ElementsAre("a RUNNING", "b RUNNING"));
  EXPECT_EQ(news_.cursor(), "9");
  EXPECT_TRUE(news_.is_listed());
}

// A later list reports the jobs that differ from their last report, whatever the change numbers of a new server, and
// those gone.
TEST_F(JobNewsTest, LaterListsTellTheDifference) {
  Take(List({JobOf("e", kSucceeded, 5), JobOf("d", kRunning, 100), JobOf("c", kQueued, 99), JobOf("b", kRunning, 98),
             JobOf("a", kRunning, 97)},
            "1"));
  EXPECT_THAT(Take(List({JobOf("f", kQueued, 1), JobOf("d", kRunning, 2, 2), JobOf("c", kQueued, 0),
                         JobOf("b", kSucceeded, 0), JobOf("a", kRunning, 3)},
                        "2")),
              ElementsAre("b SUCCEEDED", "d RUNNING", "f QUEUED", "e gone"));
  EXPECT_THAT(Take(Jobs({JobOf("c", kRunning, 4), JobOf("d", kSucceeded, 5, 2)}, "3")),
              ElementsAre("c RUNNING", "d SUCCEEDED"));
}

// Only reported jobs can be reported as gone, once each.
TEST_F(JobNewsTest, OnlyKnownJobsGo) {
  Take(List({JobOf("a", kSucceeded, 0)}, "1"));
  EXPECT_THAT(Take(Gone("b")), IsEmpty());
  EXPECT_THAT(Take(Gone("a")), ElementsAre("a gone"));
  EXPECT_THAT(Take(Gone("a")), IsEmpty());
  EXPECT_EQ(news_.cursor(), "1");
}

}  // namespace
}  // namespace hpvm
