// SPDX-License-Identifier: Apache-2.0
// Tests jobs that are held and released, and the limits of a job.
#include "server/testing/job_fixture.h"
#include "server/testing/steps.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOutput[] = "ABCDEFGH";

class JobCommandsTest : public testing::JobFixture {
 protected:
  const JobCommands::Caller user_{"uid 7", false}, admin_{"token tok-1", true};
  // Submits a held job, which would run at once otherwise.
  std::string HeldJob(const std::string& key = "") {
    v1::SubmitRequest request = Request(key);
    request.set_held(true);
    return SubmitJob(request);
  }
  std::vector<std::string> SubmitArray(uint64_t last, uint32_t running_max, bool held) {
    v1::SubmitRequest request = Request();
    request.mutable_array()->set_last(last);
    request.mutable_array()->set_running_max(running_max);
    request.set_held(held);
    const AnsweredRef answer = Submit(request);
    Prepare();
    EXPECT_EQ(answer->code(), StatusCode::kOk);
    return {answer->response.array_job_ids().begin(), answer->response.array_job_ids().end()};
  }
};

// A job that is submitted held runs when it is released, and not before; it says who holds it and how to release it.
TEST_F(JobCommandsTest, HoldsFromTheStart) {
  const std::string id = HeldJob();
  EXPECT_TRUE(OpenRuns().empty());
  EXPECT_EQ(State(id), "ACCEPTED");
  EXPECT_EQ(Job(id).hold().by(), "its submitter");
  EXPECT_EQ(Job(id).waits_for(), "Held by its submitter. `hpvmctl release " + id + "` releases it.");
  const auto released = SetHold(id, false);
  EXPECT_EQ(released->code(), StatusCode::kOk);
  EXPECT_EQ(released->response.changed(), 1u);
  EXPECT_FALSE(released->response.job().has_hold());
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(id), "SUCCEEDED");
  ExpectExactQuotas();
}

// A queued job leaves the queue, shows its hold only when that is on disk, and keeps it across a restart.
TEST_F(JobCommandsTest, HoldsWhatIsQueuedAndSurvives) {
  config_.jobs_running_max = 1;
  Restart();
  const std::string first = SubmitJob(Request()), second = SubmitJob(Request());
  ASSERT_EQ(OpenRuns().size(), 1u);
  EXPECT_EQ(State(second), "QUEUED");
  store_->hold_commits = true;
  const auto held = SetHold(second, true, user_, "its data is not there yet");
  EXPECT_FALSE(held->outcome.has_value());
  EXPECT_FALSE(Job(second).has_hold());
  ASSERT_TRUE(store_->StepCommit());
  store_->hold_commits = false;
  ASSERT_EQ(held->code(), StatusCode::kOk);
  EXPECT_EQ(held->response.job().state(), v1::JOB_STATE_ACCEPTED);
  EXPECT_EQ(Job(second).waits_for(),
            "Held by uid 7: its data is not there yet. `hpvmctl release " + second + "` releases it.");
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(first), "SUCCEEDED");
  EXPECT_TRUE(OpenRuns().empty());
  Crash();
  Start();
  EXPECT_EQ(Job(second).hold().reason(), "its data is not there yet");
  EXPECT_TRUE(OpenRuns().empty());
  EXPECT_EQ(SetHold(second, false)->code(), StatusCode::kOk);
  EXPECT_GT(Row(second).released_unix_ns(), 0);
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(second), "SUCCEEDED");
  ExpectExactQuotas();
}

// A request that is met already is not written again, and changes nothing.
TEST_F(JobCommandsTest, IsIdempotent) {
  const std::string id = HeldJob();
  store_->writes.clear();
  EXPECT_EQ(SetHold(id, true, user_, "again")->response.changed(), 0u);
  EXPECT_EQ(Job(id).hold().reason(), "");
  EXPECT_TRUE(store_->writes.empty());
  EXPECT_EQ(SetHold(id, false)->response.changed(), 1u);
  EXPECT_EQ(OpenRuns().size(), 1u);
  EXPECT_EQ(SetHold(id, false)->code(), StatusCode::kFailedPrecondition);  // The job runs.
  EXPECT_THAT(Message(SetHold(id, true)->outcome->status),
              HasSubstr("RUNNING; only a job that has not started can be held or released."));
  AnswerRun(Result(kOutput));
  EXPECT_EQ(SetHold(id, true)->code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SetHold("job-none", true)->code(), StatusCode::kNotFound);
  EXPECT_EQ(SetHold("array-none", true)->code(), StatusCode::kNotFound);
  EXPECT_EQ(SetHold(id, true, user_, std::string(256, 'r'))->code(), StatusCode::kInvalidArgument);
}

// Requests that come while one is written are granted in their order.
TEST_F(JobCommandsTest, GrantsInOrder) {
  const std::string id = HeldJob();
  store_->hold_commits = true;
  const auto released = SetHold(id, false), held = SetHold(id, true, user_, "wait"), twice = SetHold(id, true);
  EXPECT_FALSE(released->outcome.has_value() || held->outcome.has_value() || twice->outcome.has_value());
  store_->hold_commits = false;
  Pump();
  EXPECT_EQ(released->response.changed(), 1u);
  EXPECT_EQ(held->response.changed(), 1u);
  EXPECT_EQ(twice->response.changed(), 0u);
  EXPECT_EQ(Job(id).hold().reason(), "wait");
  EXPECT_TRUE(OpenRuns().empty());
}

// Only an administrator can release an administrator's hold, and tenants do not see the administrator's name.
TEST_F(JobCommandsTest, AdministratorsHoldIsTheirs) {
  const std::string id = HeldJob();
  EXPECT_EQ(SetHold(id, true, admin_, "maintenance")->response.changed(), 1u);
  EXPECT_EQ(Job(id).hold().by(), "an administrator");
  EXPECT_EQ(Job(id).waits_for(), "Held by an administrator: maintenance. Only an administrator can release it.");
  v1::Job shown;
  EXPECT_TRUE(core_->job_reader().GetJob(*tenant_, id, &shown, /*to_admin=*/true).ok());
  EXPECT_EQ(shown.hold().by(), "token tok-1");
  const auto refused = SetHold(id, false);
  EXPECT_EQ(refused->code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Message(refused->outcome->status),
            "An administrator holds " + id + ", and only an administrator can release it.");
  EXPECT_EQ(SetHold(id, true)->response.changed(), 0u);  // The job is held already.
  EXPECT_EQ(SetHold(id, false, admin_)->response.changed(), 1u);
  EXPECT_EQ(OpenRuns().size(), 1u);
}

// The deadline continues while the job is held, also across a restart; a cancelled job ends at once.
TEST_F(JobCommandsTest, EndsWhileHeld) {
  v1::SubmitRequest request = Request();
  request.set_held(true);
  request.mutable_options()->set_deadline_ns(60'000'000'000);
  const std::string late = SubmitJob(request), cancelled = HeldJob();
  Cancel(cancelled);
  EXPECT_EQ(State(cancelled), "CANCELLED");
  EXPECT_FALSE(Job(cancelled).has_hold());
  Restart();
  Advance(std::chrono::seconds(61));
  EXPECT_EQ(State(late), "EXPIRED");
  EXPECT_THAT(Job(late).error().message(), HasSubstr("passed while it was held. Held by its submitter."));
  ExpectExactQuotas();
}

// When the deadline passes or a cancel comes while a hold is being written, the job ends.
TEST_F(JobCommandsTest, EndComesFirst) {
  const std::string id = HeldJob();
  store_->hold_commits = true;
  const auto released = SetHold(id, false), held = SetHold(id, true);
  const auto cancelled = Cancel(id);
  store_->hold_commits = false;
  Pump();
  EXPECT_EQ(released->code(), StatusCode::kOk);
  EXPECT_EQ(held->code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(State(id), "CANCELLED");
  // A job that is stopped with the daemon.
  const std::string second = HeldJob();
  store_->hold_commits = store_->hold_posted = true;
  const auto unanswered = SetHold(second, false);
  End();
  EXPECT_EQ(unanswered->code(), StatusCode::kUnavailable);
}

// Jobs that depend on a held one wait for it; a held job's own dependencies are met meanwhile.
TEST_F(JobCommandsTest, OthersWaitForIt) {
  const std::string first = SubmitJob(Request());
  const std::string second = SubmitAfter(first);
  EXPECT_EQ(SetHold(second, true)->response.changed(), 1u);
  const std::string third = SubmitAfter(second);
  AnswerRun(Result(kOutput));
  EXPECT_TRUE(OpenRuns().empty());
  EXPECT_THAT(Job(third).waits_for(), HasSubstr("Waits for " + second));
  EXPECT_EQ(SetHold(second, false)->code(), StatusCode::kOk);
  AnswerRun(Result(kOutput));
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(third), "SUCCEEDED");
}

// In an array every element that has not started is held; running elements go on, and give their turns to no held one.
TEST_F(JobCommandsTest, HoldsArrays) {
  const std::vector<std::string> ids = SubmitArray(39, /*running_max=*/2, /*held=*/false);
  ASSERT_EQ(ids.size(), 40u);
  ASSERT_EQ(OpenRuns().size(), 2u);
  const std::string array = Job(ids[0]).array_id();
  const auto held = SetHold(array, true, user_, "stop");
  EXPECT_EQ(held->code(), StatusCode::kOk);
  EXPECT_EQ(held->response.changed(), 38u);
  EXPECT_FALSE(held->response.has_job());
  AnswerRun(Result(kOutput));
  AnswerRun(Result(kOutput));
  EXPECT_TRUE(OpenRuns().empty());
  EXPECT_EQ(SetHold(ids[5], false)->response.changed(), 1u);  // One element by itself.
  EXPECT_EQ(OpenRuns().size(), 1u);
  EXPECT_EQ(SetHold(ids[6], true, admin_)->response.changed(), 1u);
  const auto released = SetHold(array, false);
  EXPECT_EQ(released->code(), StatusCode::kPermissionDenied);  // The error is for one element; the others go on.
  EXPECT_EQ(OpenRuns().size(), 2u);
  for (int i = 0; i < 37; ++i) {
    AnswerRun(Result(kOutput));
  }
  EXPECT_TRUE(OpenRuns().empty());
  EXPECT_EQ(State(ids[6]), "ACCEPTED");
  EXPECT_EQ(SetHold(array, false, admin_)->response.changed(), 1u);
  AnswerRun(Result(kOutput));
  EXPECT_EQ(SetHold(array, true)->code(), StatusCode::kFailedPrecondition);  // The array has ended.
  ExpectExactQuotas();
}

// The same request with the same key finds the job; a request that differs in `held` is a different one. A retry runs.
TEST_F(JobCommandsTest, KeysAndRetries) {
  const std::string id = HeldJob("key");
  v1::SubmitRequest again = Request("key");
  EXPECT_EQ(Submit(again)->code(), StatusCode::kAlreadyExists);
  again.set_held(true);
  EXPECT_EQ(Submit(again)->id(), id);
  Cancel(id);
  v1::RetryJobRequest retry;
  retry.set_job_id(id);
  const auto second = Retry(retry);
  ASSERT_EQ(second->code(), StatusCode::kOk);
  EXPECT_FALSE(Job(second->id()).has_hold());
  EXPECT_EQ(OpenRuns().size(), 1u);
}

// A job waits no longer than its limit, from when it could start: time in which it is held, or waits for another job,
// does not count.
TEST_F(JobCommandsTest, LimitsTheWait) {
  config_.jobs_running_max = 1;
  Restart();
  v1::SubmitRequest request = Request();
  request.mutable_limits()->set_wait_ns(60'000'000'000);
  const std::string first = SubmitJob(Request()), waits = SubmitJob(request);
  request.set_held(true);
  const std::string held = SubmitJob(request);
  request.set_held(false);
  request.add_after()->set_job_id(first);
  const std::string after = SubmitJob(request);
  ASSERT_EQ(OpenRuns().size(), 1u);
  EXPECT_EQ(Job(waits).limits().wait_ns(), 60'000'000'000u);
  Advance(std::chrono::seconds(59));
  EXPECT_EQ(State(waits), "QUEUED");
  Advance(std::chrono::seconds(2));
  EXPECT_EQ(State(waits), "EXPIRED");
  EXPECT_EQ(Job(waits).error().message(), "The job waited for longer than its limit (60 s, set by the submitter).");
  EXPECT_EQ(Job(waits).error().code(), static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(State(held), "ACCEPTED");
  EXPECT_EQ(SetHold(held, false)->code(), StatusCode::kOk);
  Advance(std::chrono::seconds(30));
  AnswerRun(Result(kOutput));  // The first job's; the limit of its dependent counts from here.
  EXPECT_EQ(State(held), "RUNNING");
  Advance(std::chrono::seconds(59));
  EXPECT_EQ(State(after), "QUEUED");
  Advance(std::chrono::seconds(2));
  EXPECT_EQ(State(after), "EXPIRED");
  EXPECT_EQ(State(held), "RUNNING");  // The limit no longer applies, since the job has started.
  AnswerRun(Result(kOutput));
  ExpectExactQuotas();
}

// The wait continues across a restart from where it began: the release, or the end of the dependency.
TEST_F(JobCommandsTest, WaitSurvives) {
  v1::SubmitRequest request = Request();
  request.mutable_limits()->set_wait_ns(600'000'000'000);
  request.mutable_options()->set_deadline_ns(3'600'000'000'000);
  const std::string before = HeldJob();
  request.set_held(true);
  const std::string early = SubmitJob(request), late = SubmitJob(request);
  request.set_held(false);
  request.add_after()->set_job_id(before);
  request.mutable_after(0)->set_condition(v1::JobDependency::CONDITION_ENDED);
  const std::string after = SubmitJob(request);
  policies_.changes["ann"] = [](TenantPolicy& policy) { policy.disabled = true; };  // Nothing starts from here on.
  core_->OnPolicyChanged("ann");
  EXPECT_EQ(SetHold(early, false)->code(), StatusCode::kOk);
  Advance(std::chrono::seconds(100));
  Cancel(before);
  Advance(std::chrono::seconds(200));
  EXPECT_EQ(SetHold(late, false)->code(), StatusCode::kOk);
  Restart();
  const auto states = [&] { return State(early) + " " + State(after) + " " + State(late); };
  Advance(std::chrono::seconds(299));
  EXPECT_EQ(states(), "ACCEPTED ACCEPTED ACCEPTED");
  Advance(std::chrono::seconds(2));
  EXPECT_EQ(states(), "EXPIRED ACCEPTED ACCEPTED");
  Advance(std::chrono::seconds(100));
  EXPECT_EQ(states(), "EXPIRED EXPIRED ACCEPTED");
  Advance(std::chrono::seconds(198));
  EXPECT_EQ(states(), "EXPIRED EXPIRED ACCEPTED");
  Advance(std::chrono::seconds(2));
  EXPECT_EQ(states(), "EXPIRED EXPIRED EXPIRED");
}

// An attempt that runs for longer than its limit ends the job; each attempt has the whole limit.
TEST_F(JobCommandsTest, LimitsTheRun) {
  v1::SubmitRequest request = Request();
  request.mutable_limits()->set_run_ns(60'000'000'000);
  const std::string id = SubmitJob(request);
  ASSERT_EQ(OpenRuns().size(), 1u);
  Advance(std::chrono::seconds(50));
  Die();
  Advance(std::chrono::seconds(1));
  const auto open = OpenRuns();
  ASSERT_EQ(open.size(), 1u);
  Advance(std::chrono::seconds(50));
  EXPECT_EQ(State(id), "RUNNING");
  Advance(std::chrono::seconds(20));
  EXPECT_EQ(open[0].first->cancels.size(), 1u);
  AnswerRun(Failure(Cancelled("The run was cancelled.")));
  EXPECT_EQ(State(id), "FAILED");
  EXPECT_EQ(Job(id).error().code(), static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Job(id).error().message(), "The attempt did not end within its limit (60 s, set by the submitter).");
  EXPECT_EQ(Job(id).attempt(), 2u);
  ExpectExactQuotas();
}

// Watchers get the lines that kernels print while the attempt runs; the lines are bounded, and dropped when the job
// has its log.
TEST_F(JobCommandsTest, TellsWhatIsPrinted) {
  const std::string id = SubmitJob(Request());
  const auto open = OpenRuns();
  ASSERT_EQ(open.size(), 1u);
  const auto on_log = open[0].first->runs[open[0].second].on_log;
  ASSERT_TRUE(on_log);
  int woken = 0;
  uint64_t past = 0;
  const uint64_t key = *core_->job_reader().WatchJob(
      *tenant_, id, [&woken] { ++woken; }, &past);
  const auto logs = [&] {
    std::vector<std::string> texts;
    const std::vector<v1::JobEvent> events = core_->job_reader().ReadEvents(*tenant_, id, 0, 10'000)->events;
    for (const v1::JobEvent& event : events) {
      for (const v1::LogLine& line : event.log().lines()) {
        texts.push_back(line.text());
      }
    }
    return texts;
  };
  v1::RunLog log;
  log.add_lines()->set_text("one");
  on_log(log);
  log.add_lines()->set_text("two");
  on_log(log);
  EXPECT_EQ(woken, 2);
  EXPECT_THAT(logs(), ElementsAre("one", "one", "two"));
  const auto all = core_->job_reader().ReadEvents(*tenant_, id, past, 10)->events;
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].sequence(), past + 1);
  log.mutable_lines(0)->set_text(std::string(4'000, 'x'));
  for (int i = 0; i < 40; ++i) {
    on_log(log);
  }
  EXPECT_LE(logs().size(), 2 * kLiveLogBytesKeptMax / 4'000);
  AnswerRun(Result(kOutput));
  EXPECT_THAT(logs(), ElementsAre());
  const int before = woken;
  on_log(log);  // Too late.
  EXPECT_EQ(woken, before);
  core_->job_reader().Unwatch(*tenant_, id, key);
}

// More device time than the limit fails the job, whether its executor noticed or only reports it; and the tenant's
// quotas bound the requested limits, also of a retry.
TEST_F(JobCommandsTest, LimitsDeviceTimeByQuota) {
  policies_.changes["ann"] = [](TenantPolicy& policy) {
    policy.limits[static_cast<size_t>(scheduler::Resource::kJobDeviceTime)] = 1'500'000'000;
    policy.limits[static_cast<size_t>(scheduler::Resource::kJobRun)] = 90'000'000'000;
  };
  core_->OnPolicyChanged("ann");
  v1::SubmitRequest request = Request();
  request.mutable_limits()->set_device_ns(5'000'000'000);
  const std::string id = SubmitJob(request);
  EXPECT_EQ(Job(id).limits().device_ns(), 1'500'000'000u);
  EXPECT_EQ(Job(id).limits().run_ns(), 90'000'000'000u);
  EXPECT_EQ(Row(id).asked_limits().device_ns(), 5'000'000'000u);
  const auto open = OpenRuns();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].first->runs[open[0].second].device_ns_max, 1'500'000'000u);
  supervisor::RunReply reply = Result(kOutput);
  reply.done.add_device_ns(1'000'000'000);
  reply.done.add_device_ns(500'000'001);
  AnswerRun(std::move(reply));
  EXPECT_EQ(State(id), "FAILED");
  EXPECT_EQ(Job(id).error().code(), static_cast<int>(StatusCode::kResourceExhausted));
  EXPECT_EQ(Job(id).error().message(),
            "The attempt took more device time than its limit (1500 ms, set by the tenant's quota of "
            "job-device-seconds).");
  v1::RetryJobRequest retry;
  retry.set_job_id(id);
  const std::string again = Retry(retry)->id();
  EXPECT_EQ(Job(again).limits().device_ns(), 1'500'000'000u);
  supervisor::RunReply noticed = Failure(ResourceExhausted("The run took 2000 ms of device time."));
  noticed.done.set_over_device_time(true);
  AnswerRun(std::move(noticed));
  EXPECT_THAT(Job(again).error().message(), HasSubstr("set by the tenant's quota of job-device-seconds"));
  // Other refusals are not changed.
  const std::string third = SubmitJob(request);
  AnswerRun(Failure(ResourceExhausted("Memory.")));
  EXPECT_EQ(Job(third).error().message(), "Memory.");
  ExpectExactQuotas();
}

// Lists of all tenants are sorted by name and then newest first, page by page, with filters; their tokens are valid
// for this list only.
TEST_F(JobCommandsTest, ListsAllTenants) {
  const TenantRef ann = tenant_, bob = *core_->tenants().FindTenant("bob"), eve = *core_->tenants().FindTenant("eve");
  std::vector<std::string> wanted;
  for (const TenantRef& tenant : {eve, bob, ann}) {
    tenant_ = tenant;
    graph_ = PutGraph("{\"hpvm\": 1}");
    v1::SubmitRequest request = Request();
    request.set_held(true);
    const std::string older = SubmitJob(request), newer = SubmitJob(request);
    wanted.insert(wanted.begin(), {tenant->name + " " + newer, tenant->name + " " + older});
  }
  policies_.changes["bob"] = [](TenantPolicy& policy) { policy.disabled = true; };
  core_->OnPolicyChanged("bob");
  Pump();
  for (const bool live_only : {false, true}) {
    v1::ListJobsRequest request;
    request.set_all_tenants(true);
    request.set_page_size(1);
    if (live_only) {
      request.add_states(v1::JOB_STATE_ACCEPTED);
    }
    std::vector<std::string> listed;
    do {
      v1::ListJobsResponse page;
      const Status status = testing::Finish(core_->job_reader().ListJobs(ann, request, &page, true));
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_LE(page.jobs_size(), 1);
      for (const v1::Job& job : page.jobs()) {
        listed.push_back(job.tenant() + " " + job.id());
      }
      request.set_page_token(page.next_page_token());
      ASSERT_LE(listed.size(), 6u);
    } while (!request.page_token().empty());
    EXPECT_EQ(listed, wanted) << live_only;
  }
  v1::ListJobsRequest request;
  request.set_page_size(1);
  v1::ListJobsResponse own, all;
  ASSERT_TRUE(testing::Finish(core_->job_reader().ListJobs(ann, request, &own)).ok());
  EXPECT_EQ(own.jobs(0).tenant(), "");
  request.set_all_tenants(true);
  ASSERT_TRUE(testing::Finish(core_->job_reader().ListJobs(ann, request, &all, true)).ok());
  for (const std::string& wrong :
       {own.next_page_token(), "bob" + all.next_page_token().substr(3), std::string("x/"), std::string("ann/")}) {
    request.set_page_token(wrong);
    v1::ListJobsResponse page;
    EXPECT_EQ(testing::Finish(core_->job_reader().ListJobs(ann, request, &page, true)).code(),
              StatusCode::kInvalidArgument)
        << wrong;
  }
  request.set_all_tenants(false);
  request.set_page_token(all.next_page_token());
  EXPECT_EQ(testing::Finish(core_->job_reader().ListJobs(ann, request, &own)).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hpvm::server
