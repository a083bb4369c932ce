// SPDX-License-Identifier: Apache-2.0
// Tests work under the core's mutex whose size a tenant chooses: a few jobs at each hold, with the same result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/testing/job_fixture.h"
#include "server/testing/steps.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;

constexpr char kOutput[] = "ABCDEFGH";

class SlicesTest : public testing::JobFixture {
 protected:
  SlicesTest() {
    config_.jobs_running_per_tenant_max = 4;
    Restart();
  }
  v1::SubmitRequest ArrayRequest(uint64_t last, uint32_t running_max = 0) {
    v1::SubmitRequest request = Request();
    request.mutable_array()->set_first(0);
    request.mutable_array()->set_last(last);
    request.mutable_array()->set_running_max(running_max);
    return request;
  }
  std::vector<std::string> SubmitArray(const v1::SubmitRequest& request) {
    const AnsweredRef answer = Submit(request);
    Prepare();
    EXPECT_EQ(answer->code(), StatusCode::kOk) << (answer->outcome ? answer->outcome->status : Status());
    return {answer->response.array_job_ids().begin(), answer->response.array_job_ids().end()};
  }
  std::map<std::string, int> States(const std::vector<std::string>& ids) {
    std::map<std::string, int> states;
    for (const std::string& id : ids) {
      ++states[State(id)];
    }
    return states;
  }
  // Runs the posted work, which was held until then, and returns the number of holds of the mutex.
  int StepAll() {
    int steps = 0;
    for (; store_->StepPosted(); ++steps) {
      Pump();
    }
    store_->hold_posted = false;
    Pump();
    return steps;
  }
  void SetDisabled(bool disabled) {
    policies_.changes["ann"] = [disabled](TenantPolicy& policy) { policy.disabled = disabled; };
    core_->OnPolicyChanged("ann");
  }
  void ExpectAllSucceed(const std::vector<std::string>& ids) {
    while (!OpenRuns().empty()) {
      AnswerRun(Result(kOutput));
    }
    EXPECT_THAT(States(ids), ElementsAre(::testing::Pair("SUCCEEDED", ids.size())));
    ExpectExactQuotas();
  }
};

// Elements share labels and `after`, which are stored once and shown in each element: while it waits, runs and has
// ended, and after a restart.
TEST_F(SlicesTest, ElementsShowWhatTheyShare) {
  const std::string first = SubmitJob(Request());
  v1::SubmitRequest request = ArrayRequest(9);
  (*request.mutable_options()->mutable_labels())["team"] = "blue";
  request.add_after()->set_job_id(first);
  const std::vector<std::string> ids = SubmitArray(request);
  ASSERT_EQ(ids.size(), 10u);
  const auto count = [&](const std::string& team) {
    v1::ListJobsRequest list;
    v1::ListJobsResponse listed;
    (*list.mutable_labels())["team"] = team;
    EXPECT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, list, &listed)).ok());
    return listed.jobs_size();
  };
  const auto expect_all = [&] {
    for (const std::string& id : ids) {
      const v1::Job job = Job(id);
      EXPECT_EQ(job.labels().size(), 1u) << id;
      EXPECT_EQ(job.labels().count("team"), 1u) << id;
      ASSERT_EQ(job.after_size(), 1) << id;
      EXPECT_EQ(job.after(0).job_id(), first);
    }
    EXPECT_EQ(count("blue"), 10);
    EXPECT_EQ(count("red"), 0);
  };
  EXPECT_EQ(State(ids[0]), "ACCEPTED");
  expect_all();
  AnswerRun(Result(kOutput));  // The first job.
  EXPECT_EQ(States(ids)["RUNNING"], 4);
  expect_all();
  AnswerRun(Result(kOutput));
  Cancel(*std::find_if(ids.begin(), ids.end(), [this](const std::string& id) { return State(id) == "QUEUED"; }));
  EXPECT_EQ(States(ids)["SUCCEEDED"], 1);
  EXPECT_EQ(States(ids)["CANCELLED"], 1);
  expect_all();
  Restart();
  expect_all();
  std::set<const StoredJob*> kept;
  for (const auto& [id, job] : tenant_->jobs) {
    kept.insert(job->stored->shared.get());
    EXPECT_TRUE(job->shown().labels().empty()) << id;
  }
  EXPECT_EQ(kept.size(), 1u);
  EXPECT_FALSE(kept.contains(nullptr));
  while (!OpenRuns().empty()) {
    AnswerRun(Result(kOutput));
  }
  EXPECT_EQ(States(ids)["SUCCEEDED"], 9);
  expect_all();
}

// However many elements an array has, each hold of the mutex makes, or begins, a few. Their dependencies may end at
// any time meanwhile, and each element learns of it.
TEST_F(SlicesTest, TakesArraysInSlices) {
  for (const bool succeeds : {true, false}) {
    for (int when = 0; when < 3; ++when) {  // The other job ends before the rows are made, written, or all live.
      SCOPED_TRACE(std::to_string(when) + (succeeds ? " succeeds" : " fails"));
      const std::string first = SubmitJob(Request());
      ASSERT_EQ(OpenRuns().size(), 1u);
      store_->hold_posted = store_->hold_commits = true;
      v1::SubmitRequest request = ArrayRequest(99);
      request.mutable_array()->set_first(0);
      request.add_after()->set_job_id(first);
      const AnsweredRef answer = Submit(request);
      const auto end_first = [&] {
        AnswerRun(succeeds ? Result(kOutput) : Failure(Aborted("A trap.")));
        while (store_->StepCommit()) {
        }
        EXPECT_TRUE(IsTerminal(Job(first).state()));
        Advance(std::chrono::milliseconds(1));  // The last of its dependents are informed a moment later.
      };
      const size_t written = store_->writes.size();
      int steps = 0;
      while (store_->writes.size() == written && store_->StepPosted()) {
        ++steps;
      }
      EXPECT_GT(steps, 5);
      // (The insert waits for its commit.)
      if (when == 0) {
        end_first();
      } else {
        ASSERT_TRUE(store_->StepCommit());
      }
      EXPECT_FALSE(answer->outcome.has_value());
      if (when == 1) {
        end_first();
      }
      v1::ListJobsRequest list;
      v1::ListJobsResponse listed;
      ASSERT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, list, &listed)).ok());
      const auto job = Cancel(listed.jobs(0).id()), array = Cancel(listed.jobs(0).array_id());
      // Some more begin before both cancels have their turn.
      while (!array->outcome.has_value() && store_->StepPosted()) {
      }
      for (const auto& cancelled : {job, array}) {
        ASSERT_TRUE(cancelled->outcome.has_value());
        EXPECT_EQ(cancelled->outcome->status.code(), StatusCode::kUnavailable);
      }
      if (when == 2) {
        end_first();
      }
      store_->hold_posted = store_->hold_commits = false;
      Pump();
      ASSERT_EQ(answer->code(), StatusCode::kOk);
      ASSERT_EQ(answer->response.array_job_ids_size(), 100);
      while (!OpenRuns().empty()) {
        AnswerRun(Result(kOutput));
      }
      std::map<std::string, int> states;
      for (const std::string& id : answer->response.array_job_ids()) {
        ++states[State(id)];
      }
      EXPECT_THAT(states, ElementsAre(::testing::Pair(succeeds ? "SUCCEEDED" : "FAILED", 100)));
      EXPECT_EQ(tenant_->dependencies.size(), 0u);
      EXPECT_TRUE(tenant_->jobs.empty());
      EXPECT_TRUE(tenant_->arrays.empty());
      ExpectExactQuotas();
    }
  }
}

// A cancel of an array is answered when all of its elements have recorded it.
TEST_F(SlicesTest, CancelsArraysInSlices) {
  v1::SubmitRequest request = ArrayRequest(99, 1);
  request.mutable_array()->set_first(0);
  const std::vector<std::string> ids = SubmitArray(request);
  ASSERT_EQ(ids.size(), 100u);
  store_->hold_posted = true;
  const auto answer = Cancel(Job(ids[0]).array_id());
  EXPECT_FALSE(answer->outcome.has_value());
  EXPECT_EQ(State(ids[99]), "ACCEPTED");
  int steps = 0;
  for (; store_->StepPosted(); ++steps) {
    Pump();
  }
  EXPECT_GT(steps, 5);
  store_->hold_posted = false;
  Pump();
  for (const auto& [executor, run] : OpenRuns()) {
    executor->AnswerRun(Failure(Cancelled("Stopped.")), run);
  }
  Pump();
  ASSERT_TRUE(answer->outcome.has_value());
  EXPECT_TRUE(answer->outcome->ok());
  EXPECT_EQ(answer->response.cancelled(), 100u);
  for (const std::string& id : ids) {
    EXPECT_EQ(State(id), "CANCELLED");
  }
  EXPECT_TRUE(tenant_->arrays.empty());
}

// A list takes its turns, too, and shows each job once whatever ends meanwhile.
TEST_F(SlicesTest, ListsInSteps) {
  v1::SubmitRequest request = ArrayRequest(199);
  request.mutable_array()->set_first(0);
  const std::vector<std::string> ids = SubmitArray(request);
  for (const bool live : {false, true}) {
    v1::ListJobsRequest list;
    list.set_page_size(1'000);
    if (live) {
      list.add_states(v1::JOB_STATE_ACCEPTED);
      list.add_states(v1::JOB_STATE_QUEUED);
      list.add_states(v1::JOB_STATE_RUNNING);
    }
    v1::ListJobsResponse listed;
    const JobReader::Steps step = core_->job_reader().ListJobs(tenant_, list, &listed);
    int steps = 0;
    StatusOr<bool> is_done = false;
    while (is_done.ok() && !*is_done) {
      is_done = step();
      ++steps;
      Cancel(ids[static_cast<size_t>(steps)]);  // An element that the list has not reached.
    }
    EXPECT_TRUE(is_done.ok()) << is_done.status();
    EXPECT_GT(steps, 3);
    std::set<std::string> shown;
    for (const v1::Job& job : listed.jobs()) {
      EXPECT_TRUE(shown.insert(job.id()).second);
    }
    EXPECT_GE(shown.size(), live ? ids.size() - 2 * static_cast<size_t>(steps) : ids.size());
  }
}

// A tenant is disabled while many of its jobs are queued; it is enabled again before all have left the queue, or
// after.
TEST_F(SlicesTest, SuspendsInSlices) {
  for (const bool early : {true, false}) {
    SCOPED_TRACE(early);
    const std::vector<std::string> ids = SubmitArray(ArrayRequest(99));
    ASSERT_EQ(OpenRuns().size(), 4u);
    store_->hold_posted = true;
    SetDisabled(true);
    EXPECT_GE(States(ids)["QUEUED"], 80);
    if (early) {
      SetDisabled(false);
    }
    EXPECT_GT(StepAll(), 5);
    if (!early) {
      EXPECT_THAT(States(ids), ElementsAre(::testing::Pair("ACCEPTED", 100)));
      EXPECT_TRUE(OpenRuns().empty());
      SetDisabled(false);
      Pump();
    }
    Advance(std::chrono::minutes(1));
    ExpectAllSucceed(ids);
    for (const std::string& id : ids) {
      EXPECT_EQ(Row(id).attempts_spent(), 1u) << "an attempt that was broken off does not count";
    }
  }
}

// The disk is full while many jobs are queued.
TEST_F(SlicesTest, LeavesQueuesInSlices) {
  const std::vector<std::string> ids = SubmitArray(ArrayRequest(99));
  ASSERT_EQ(OpenRuns().size(), 4u);
  store_->hold_posted = true;
  core_->OnRoom(false);
  EXPECT_GE(States(ids)["QUEUED"], 80);
  // A turn that comes meanwhile starts nothing.
  const auto open = OpenRuns();
  open[0].first->AnswerRun(Result(kOutput), open[0].second);
  EXPECT_GT(StepAll(), 5);
  EXPECT_EQ(OpenRuns().size(), 3u);
  EXPECT_EQ(States(ids)["QUEUED"], 0);
  core_->OnRoom(true);
  Pump();
  ExpectAllSucceed(ids);
}

// None of many queued jobs may start, since executors have crashed: each gives its turn back by itself.
TEST_F(SlicesTest, TurnsGoBackOneByOne) {
  const std::vector<std::string> ids = SubmitArray(ArrayRequest(99));
  for (int i = 0; i < 3; ++i) {
    ASSERT_FALSE(OpenRuns().empty());
    store_->hold_posted = true;
    spawner_.last().Die(Unavailable("The executor process ended (signal 9)."));
    while (store_->StepCommit()) {
    }
    EXPECT_GE(States(ids)["QUEUED"], 80) << i;
    EXPECT_GT(StepAll(), i == 2 ? 50 : 0);
    Advance(std::chrono::seconds(1));
  }
  EXPECT_THAT(States(ids), ElementsAre(::testing::Pair("ACCEPTED", 100)));
  for (const std::string& id : ids) {  // Jobs whose attempts were lost, and jobs that had none.
    EXPECT_THAT(Job(id).waits_for(), ::testing::HasSubstr("may start again")) << Job(id).lost_attempts_size();
  }
  Advance(std::chrono::minutes(1));
  ExpectAllSucceed(ids);
}

}  // namespace
}  // namespace hpvm::server
