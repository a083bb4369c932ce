// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/stored_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpvm::server {
namespace {

using cluster::JobState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StoredJob Row() {
  StoredJob row;
  row.set_tenant("t");
  row.mutable_job()->set_id("job-1");
  row.mutable_job()->set_created_unix_ns(1'000);
  row.mutable_job()->set_deadline_unix_ns(3'000);
  row.mutable_job()->set_attempts_max(3);
  (*row.mutable_job()->mutable_labels())["a"] = "b";
  return row;
}

InsertJobs InsertOf(StoredJob row, const std::string& key = "") {
  InsertJobs insert;
  insert.jobs.push_back(std::move(row));
  insert.request = "request";
  insert.idempotency_key = key;
  return insert;
}

cluster::JobView ViewOf(const StoredJob& row, JobState state) {
  cluster::JobView view;
  view.tenant = "t";
  view.id = row.job().id();
  view.state = state;
  view.attempts = 1;
  view.host = "one";
  view.record = row.SerializeAsString();
  view.number = 7;
  view.started = Time(1'500);
  return view;
}

TEST(StoredViewTest, ANewJobHasItsNeedsAndDeadline) {
  StoredJob row = Row();
  row.add_needs("cpu:0,opencl:0");
  row.mutable_job()->mutable_host_needs()->add_words("label:lab");
  row.mutable_job()->mutable_host_needs()->set_memory_bytes(5);
  v1::JobDependency& after = *row.mutable_job()->add_after();
  after.set_job_id("job-0");
  after.set_condition(v1::JobDependency::CONDITION_ENDED);
  const StatusOr<cluster::NewJob> job = NewJobOf(InsertOf(row), 0, "one");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->deadline, Duration(2'000));
  EXPECT_EQ(job->attempts_max, 3u);
  EXPECT_THAT(job->needs.any_of, ElementsAre(ElementsAre("device:cpu:0", "device:opencl:0"), ElementsAre("label:lab")));
  EXPECT_EQ(job->needs.memory_bytes, 5u);
  EXPECT_EQ(job->needs.host, "");
  ASSERT_EQ(job->after.size(), 1u);
  EXPECT_EQ(job->after[0].condition, cluster::Dependency::Condition::kEnded);
}

TEST(StoredViewTest, ElementsOfALimitedArrayAreAGroup) {
  StoredJob row = Row();
  row.mutable_job()->set_array_id("array-1");
  EXPECT_EQ(NewJobOf(InsertOf(row), 0, "one")->needs.group, "");
  row.set_array_running_max(8);
  const StatusOr<cluster::NewJob> job = NewJobOf(InsertOf(row), 0, "one");
  EXPECT_EQ(job->needs.running_max, 8u);
  EXPECT_EQ(job->needs.group, "array-1");
}

TEST(StoredViewTest, BuffersBindAJobToTheirHost) {
  StoredJob row = Row();
  row.set_bound_to_host(true);
  EXPECT_EQ(NewJobOf(InsertOf(row), 0, "one")->needs.host, "one");
  row.mutable_job()->mutable_host_needs()->set_host("two");
  EXPECT_TRUE(absl::IsInvalidArgument(NewJobOf(InsertOf(row), 0, "one").status()));
}

// Otherwise a repeated call would add the elements after the first one again.
TEST(StoredViewTest, ElementsOfAnArrayHaveKeysOfTheirOwn) {
  InsertJobs insert = InsertOf(Row(), "key");
  insert.jobs.push_back(Row());
  EXPECT_EQ(NewJobOf(insert, 0, "one")->idempotency_key, "key");
  EXPECT_EQ(NewJobOf(insert, 1, "one")->idempotency_key, "key#1");
}

TEST(StoredViewTest, AJobThatWritesWhatItReadsHasOneAttempt) {
  StoredJob row = Row();
  row.set_in_place(true);
  EXPECT_EQ(NewJobOf(InsertOf(row), 0, "one")->attempts_max, 1u);
}

TEST(StoredViewTest, AnArrayMeansItsElements) {
  StoredJob row = Row();
  row.mutable_job()->add_after()->set_job_id("array-1");
  row.mutable_job()->mutable_after(0)->set_condition(v1::JobDependency::CONDITION_FAILED);
  const StatusOr<cluster::NewJob> job = NewJobOf(InsertOf(row), 0, "one", {{"array-1", {"a", "b"}}});
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->after.size(), 2u);
  EXPECT_EQ(job->after[1].job, "b");
  EXPECT_EQ(job->after[1].condition, cluster::Dependency::Condition::kFailed);
}

TEST(StoredViewTest, TheStoresColumnsCount) {
  StoredJob record = Row();
  record.mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
  const StatusOr<StoredJob> row = RowOf(ViewOf(record, JobState::kRunning));
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(row->job().host(), "one");
  EXPECT_EQ(row->job().started_unix_ns(), 1'500);
  EXPECT_EQ(row->sequence(), 7u);
  EXPECT_EQ(row->job().labels().at("a"), "b");
}

TEST(StoredViewTest, SaysHowTheStoreEndedAJob) {
  const auto error = [](JobState state, uint32_t attempts) {
    cluster::JobView view = ViewOf(Row(), state);
    view.attempts = attempts;
    view.ended = Time(9'000);
    const StoredJob row = *RowOf(view);
    EXPECT_EQ(row.job().ended_unix_ns(), 9'000);
    return row.job().error().message();
  };
  EXPECT_THAT(error(JobState::kDead, 3), HasSubstr("The last one ran on host \"one\"."));
  EXPECT_THAT(error(JobState::kExpired, 0), HasSubstr("before it started"));
  EXPECT_THAT(error(JobState::kCancelled, 0), HasSubstr("cancelled"));
  EXPECT_THAT(error(JobState::kFailed, 0), HasSubstr("comes after"));
  EXPECT_THAT(error(JobState::kFailed, 1), HasSubstr("deadline"));
  EXPECT_THAT(error(JobState::kSucceeded, 1), IsEmpty());
}

TEST(StoredViewTest, HoldsAreTheStores) {
  v1::JobHold hold;
  hold.set_by("ann");
  cluster::JobView view = ViewOf(Row(), JobState::kWaiting);
  view.is_held = true;
  view.hold = hold.SerializeAsString();
  EXPECT_EQ(RowOf(view)->job().hold().by(), "ann");
  view.hold = "\xff";
  EXPECT_TRUE(RowOf(view)->job().has_hold());
  view.is_held = false;
  EXPECT_FALSE(RowOf(view)->job().has_hold());
}

TEST(StoredViewTest, DamagedRecordsAreDataLoss) {
  cluster::JobView view = ViewOf(Row(), JobState::kWaiting);
  view.record = "\xff";
  EXPECT_TRUE(absl::IsDataLoss(RowOf(view).status()));
  view = ViewOf(Row(), JobState::kWaiting);
  view.id = "job-2";
  EXPECT_TRUE(absl::IsDataLoss(RowOf(view).status()));
}

TEST(StoredViewTest, AClaimIsAcceptedWithTheAttemptsBefore) {
  StoredJob record = Row();
  record.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
  record.mutable_job()->mutable_hold()->set_by("ann");
  const cluster::Claim claim{.tenant = "t", .id = "job-1", .record = record.SerializeAsString(), .attempts = 3};
  const StatusOr<StoredJob> row = RowOf(claim);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->job().state(), v1::JOB_STATE_ACCEPTED);
  EXPECT_EQ(row->attempts_spent(), 2u);
  EXPECT_EQ(row->job().attempt(), 2u);
  EXPECT_FALSE(row->job().has_hold());
}

TEST(StoredViewTest, ResultsOfJobsThatTheStoreEndedAreEmpty) {
  cluster::JobView view = ViewOf(Row(), JobState::kDead);
  view.result = cluster::kEndedByLoss;
  EXPECT_EQ(ResultsOf(view)->outputs_size(), 0);
  view.state = JobState::kSucceeded;
  view.result = "\xff";
  EXPECT_TRUE(absl::IsDataLoss(ResultsOf(view).status()));
}

}  // namespace
}  // namespace hpvm::server
