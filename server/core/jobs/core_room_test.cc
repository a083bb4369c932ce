// SPDX-License-Identifier: Apache-2.0
// Tests jobs on a disk without room: what is refused, what waits and says so, and what goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/job_fixture.h"

namespace hpvm::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWaits[] = "Waits for room on the server's disk.";

class CoreRoomTest : public testing::JobFixture {};

// No new job is accepted, nor a retry of one, and a known key is still answered.
TEST_F(CoreRoomTest, RefusesNewJobs) {
  const std::string known = SubmitJob(Request("known"));
  core_->OnRoom(false);
  const AnsweredRef refused = Submit(Request("new"));
  EXPECT_EQ(refused->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(refused->outcome->status), "The server's disk is full: it accepts no jobs until there is room.");
  EXPECT_TRUE(refused->outcome->detail->retryable());
  EXPECT_EQ(Submit(Request("known"))->id(), known);
  core_->OnRoom(true);
  EXPECT_EQ(Submit(Request("new"))->code(), absl::StatusCode::kOk);
  ExpectExactQuotas();
}

// Errors to a tenant do not name the server's folders.
TEST_F(CoreRoomTest, PathsAreForTheLog) {
  SubmitJob(Request());
  v1::CreateBufferRequest create;
  create.set_type(v1::ELEMENT_TYPE_F32);
  create.add_shape(2);
  v1::SubmitRequest large = Request();  // A part of it goes into a file.
  large.mutable_inputs(0)->mutable_buffer()->set_buffer_id(core_->buffers().CreateBuffer(*tenant_, create)->id());
  store_->put_failure = ResourceExhausted("Writing \"/var/lib/hpvmd/blobs/ann/.new-75\" failed.");
  const AnsweredRef refused = Submit(large);
  EXPECT_EQ(refused->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused->outcome->status), Not(HasSubstr("/var")));
  EXPECT_TRUE(refused->outcome->detail->retryable());
}

// Jobs that wait for their turn wait for the disk instead, and say so; a running job ends. With room all go on, once.
TEST_F(CoreRoomTest, NothingNewIsStarted) {
  config_.jobs_running_per_tenant_max = 1;
  StartFresh(config_);
  const std::string runs = SubmitJob(Request()), waits = SubmitJob(Request());
  EXPECT_EQ(OpenRuns().size(), 1u);
  EXPECT_EQ(State(waits), "QUEUED");
  core_->OnRoom(false);
  EXPECT_EQ(State(waits), "ACCEPTED");
  EXPECT_EQ(Job(waits).waits_for(), kWaits);
  EXPECT_EQ(Job(runs).waits_for(), "");
  AnswerRun(Result("abcdefgh"));
  EXPECT_EQ(State(runs), "SUCCEEDED");
  EXPECT_TRUE(OpenRuns().empty());
  ExpectExactQuotas();
  core_->OnRoom(true);
  AnswerRun(Result("abcdefgh"));
  EXPECT_EQ(State(waits), "SUCCEEDED");
  EXPECT_EQ(Job(waits).attempt(), 1u);
  ExpectExactQuotas();
}

// Jobs that need a paused device wait for it and say so, across restarts; one that its executor refused for that
// reason has lost no attempt; running jobs end.
TEST_F(CoreRoomTest, JobsWaitForPausedDevices) {
  config_.jobs_running_per_tenant_max = 1;
  StartFresh(config_);
  const std::string runs = SubmitJob(Request()), waits = SubmitJob(Request());
  Intake intake;
  intake.paused["cpu:0"] = {.reason = "new fans", .paused_by = "uid 0", .since_unix_ns = 5};
  core_->SetIntake(intake);
  EXPECT_EQ(State(waits), "ACCEPTED");
  EXPECT_EQ(Job(waits).waits_for(),
            "Waits for a device. cpu:0 is paused: new fans. A part of the graph runs nowhere else.");
  AnswerRun(Failure(Unavailable("Device cpu:0 is fenced or paused, and starts no new work.")));
  EXPECT_EQ(State(runs), "ACCEPTED");
  EXPECT_EQ(Job(runs).lost_attempts_size(), 0);
  EXPECT_EQ(Job(runs).attempts_counted(), 0u);
  const std::string late = SubmitJob(Request());
  EXPECT_EQ(State(late), "ACCEPTED");
  EXPECT_TRUE(OpenRuns().empty());
  ExpectExactQuotas();
  core_->SetIntake({});
  for (int i = 0; i < 3; ++i) {
    AnswerRun(Result("abcdefgh"));
  }
  for (const std::string& id : {runs, waits, late}) {
    EXPECT_EQ(State(id), "SUCCEEDED");
  }
  EXPECT_EQ(Job(waits).attempt(), 1u);
  ExpectExactQuotas();
}

// Waiting jobs can be cancelled without room.
TEST_F(CoreRoomTest, CancelsWithoutRoom) {
  core_->OnRoom(false);
  core_->OnRoom(true);
  config_.jobs_running_per_tenant_max = 1;
  StartFresh(config_);
  SubmitJob(Request());
  const std::string waits = SubmitJob(Request());
  core_->OnRoom(false);
  EXPECT_TRUE(Cancel(waits)->outcome->ok());
  EXPECT_EQ(State(waits), "CANCELLED");
}

// Outputs without room are reported as waiting, tell the store how much they need, and are stored when there is room.
TEST_F(CoreRoomTest, OutputsAwaitRoom) {
  const std::string id = SubmitJob(Request());
  store_->put_failure = ResourceExhausted("The disk is full.");
  AnswerRun(Result(std::string(40'000, 'x')));
  EXPECT_EQ(State(id), "RUNNING");
  EXPECT_EQ(Job(id).waits_for(), "Waits for room on the server's disk; its result is kept in memory until then.");
  EXPECT_THAT(store_->awaited, ElementsAre(40'000u));
  Advance(std::chrono::seconds(1));
  EXPECT_THAT(store_->awaited, ElementsAre(40'000u, 40'000u));
  // The job's turn is free for runs once the disk is known to be full.
  CoreSnapshot before = core_->Snapshot(/*with_tenants=*/true);
  EXPECT_EQ(before.tenants[0].running, 1u);
  core_->OnRoom(false);
  Advance(std::chrono::seconds(1));
  CoreSnapshot after = core_->Snapshot(/*with_tenants=*/true);
  EXPECT_EQ(after.tenants[0].running, 0u);
  store_->put_failure = absl::OkStatus();
  Advance(std::chrono::seconds(1));
  EXPECT_EQ(State(id), "SUCCEEDED");
  EXPECT_EQ(Job(id).waits_for(), "");
  EXPECT_EQ(Job(id).attempt(), 1u);
}

// An end that waits for its commit on a full disk says so.
TEST_F(CoreRoomTest, EndsAwaitRoom) {
  const std::string id = SubmitJob(Request());
  store_->hold_commits = true;
  AnswerRun(Result("abcdefgh"));
  EXPECT_EQ(Job(id).waits_for(), "");
  core_->OnRoom(false);
  EXPECT_EQ(Job(id).waits_for(), kWaits);
  store_->hold_commits = false;
  Pump();
  EXPECT_EQ(State(id), "SUCCEEDED");
}

}  // namespace
}  // namespace hpvm::server
