// SPDX-License-Identifier: Apache-2.0
// Tests dependencies, arrays, restarts from each state, drains, broken stores, and random sequences of all of it.
#include <algorithm>
#include <set>

#include "base/failpoint.h"
#include "server/testing/job_fixture.h"
#include "server/testing/steps.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using JobTest = testing::JobFixture;

constexpr char kOutput[] = "ABCDEFGH";
constexpr auto kEnded = v1::JobDependency::CONDITION_ENDED, kFailed = v1::JobDependency::CONDITION_FAILED;

class RestartTest : public JobTest {
 protected:
  v1::SubmitRequest ArrayRequest(uint64_t last, uint32_t running_max = 0) {
    v1::SubmitRequest request = Request();
    request.mutable_array()->set_last(last);
    request.mutable_array()->set_running_max(running_max);
    return request;
  }
  std::vector<std::string> SubmitArray(const v1::SubmitRequest& request) {
    const AnsweredRef answer = Submit(request);
    Prepare(with_index_);
    Pump();
    EXPECT_EQ(answer->code(), StatusCode::kOk) << (answer->outcome ? answer->outcome->status : Status());
    return {answer->response.array_job_ids().begin(), answer->response.array_job_ids().end()};
  }
};

// Chains, fan-in and fan-out start when their dependencies have ended as required, and never before.
TEST_F(RestartTest, RunsInOrder) {
  const std::string a = SubmitJob(Request()), b = SubmitJob(Request());
  const std::string after_a = SubmitAfter(a);
  v1::SubmitRequest fan_in = Request();
  fan_in.add_after()->set_job_id(a);
  fan_in.add_after()->set_job_id(b);
  const std::string after_both = SubmitJob(fan_in);
  const std::string chain = SubmitAfter(after_a);
  EXPECT_THAT(Job(after_a).waits_for(), HasSubstr("Waits for " + a + " to succeed."));
  EXPECT_THAT(Job(after_both).waits_for(), HasSubstr("It also waits for 1 more."));
  EXPECT_EQ(OpenRuns().size(), 2u);
  AnswerRun(Result(kOutput));  // a
  EXPECT_EQ(State(after_a), "RUNNING");
  EXPECT_EQ(State(after_both), "ACCEPTED");
  EXPECT_EQ(State(chain), "ACCEPTED");
  AnswerRun(Result(kOutput));  // b
  EXPECT_EQ(State(after_both), "RUNNING");
  AnswerRun(Result(kOutput));  // after_a
  EXPECT_EQ(State(chain), "RUNNING");
  // A job after one that has ended already starts at once.
  EXPECT_EQ(State(SubmitAfter(a)), "RUNNING");
  EXPECT_EQ(Job(chain).after(0).job_id(), after_a);
}

// A dependency that can no longer be met ends the job without an attempt, and so down the chain; other conditions
// hold.
TEST_F(RestartTest, FailsWhatCanNeverStart) {
  const std::string a = SubmitJob(Request());
  const std::string b = SubmitAfter(a), c = SubmitAfter(b), d = SubmitAfter(b, kEnded), e = SubmitAfter(b, kFailed),
                    f = SubmitAfter(a, kFailed);
  AnswerRun(Failure(Aborted("A trap.")));
  EXPECT_EQ(State(b), "FAILED");
  EXPECT_EQ(State(c), "FAILED");
  EXPECT_EQ(Job(b).error().code(), static_cast<int>(StatusCode::kFailedPrecondition));
  v1::ErrorDetail detail;
  ASSERT_TRUE(Job(b).error().details(0).UnpackTo(&detail));
  EXPECT_EQ(detail.job_id(), a);
  EXPECT_EQ(Job(b).attempt(), 0u);
  for (const std::string& id : {d, e, f}) {
    EXPECT_EQ(State(id), "RUNNING");
  }
  EXPECT_EQ(State(SubmitAfter(a)), "FAILED");  // Known at the submit.
  const std::string g = SubmitAfter(d, kFailed);
  for (int i = 0; i < 3; ++i) {
    AnswerRun(Result(kOutput));
  }
  EXPECT_EQ(State(g), "FAILED");
  ExpectExactQuotas();
}

// A cancelled job's dependents are informed as well.
TEST_F(RestartTest, CancelsReachDependents) {
  const std::string a = SubmitJob(Request());
  const std::string b = SubmitAfter(a), c = SubmitAfter(b, kEnded);
  Cancel(b);
  EXPECT_EQ(State(c), "RUNNING");
}

// Dependencies hold across a restart: on jobs that ended before, still run, or ended in the wrong state.
TEST_F(RestartTest, DependenciesSurvive) {
  const std::string done = SubmitJob(Request());
  AnswerRun(Result(kOutput));
  const std::string running = SubmitJob(Request());
  v1::SubmitRequest both = Request();
  both.add_after()->set_job_id(done);
  both.add_after()->set_job_id(running);
  const std::string waits = SubmitJob(both);
  const auto elements = SubmitArray(ArrayRequest(1));
  const std::string array = Job(elements[0]).array_id();
  const std::string after_array = SubmitAfter(array);
  ASSERT_EQ(OpenRuns().size(), 3u);
  AnswerRun(Result(kOutput));  // running
  EXPECT_EQ(State(waits), "RUNNING");
  AnswerRun(Result(kOutput));  // elements[0]
  EXPECT_EQ(State(elements[0]), "SUCCEEDED");
  const std::string late = SubmitAfter(elements[1]);
  Crash();
  Start();
  EXPECT_EQ(State(after_array), "ACCEPTED");
  EXPECT_EQ(State(late), "ACCEPTED");
  Advance(std::chrono::seconds(1));
  const std::string later = SubmitAfter(array);  // This array ended in part before this daemon.
  EXPECT_EQ(State(later), "ACCEPTED");
  ASSERT_EQ(OpenRuns().size(), 2u);
  AnswerRun(Result(kOutput));
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(waits), "SUCCEEDED");
  EXPECT_EQ(State(elements[1]), "SUCCEEDED");
  for (const std::string& id : {late, after_array, later}) {
    EXPECT_EQ(State(id), "RUNNING");
  }
}

// A disk that cannot be read once is read again. When it stays unreadable, jobs that would run on a guess end with the
// error that the state is unknown: the job before may well have succeeded.
TEST_F(RestartTest, AsksTheStoreAgain) {
  const std::string done = SubmitJob(Request()), holder = SubmitJob(Request());
  AnswerRun(Result(kOutput));
  v1::SubmitRequest both = Request();
  both.add_after()->set_job_id(done);
  both.add_after()->set_job_id(holder);
  const std::string waits = SubmitJob(both);
  Crash();
  ASSERT_TRUE(SetFailpoints("core.restore.read=error(data_loss)@1").ok());
  Start();
  EXPECT_EQ(State(waits), "ACCEPTED");
  Crash();
  ASSERT_TRUE(SetFailpoints("core.restore.read=error(data_loss)").ok());
  Start();
  EXPECT_EQ(FailpointHits()["core.restore.read"], 3u);
  ASSERT_TRUE(SetFailpoints("").ok());
  EXPECT_EQ(State(waits), "FAILED");
  EXPECT_EQ(Job(waits).error().code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Job(waits).error().message(), ::testing::StartsWith("The job was not started: it comes after " + done +
                                                                  ", whose outcome the store cannot read. "));
  EXPECT_EQ(State(done), "SUCCEEDED");
}

// An element that failed and is stored no longer is not taken for one that succeeded: neither by the daemon that saw
// it fail nor by one that only finds the others.
TEST_F(RestartTest, ElementsThatAreGoneAreNotTakenForGood) {
  config_.jobs_kept_max = 0;
  Restart();
  const auto elements = SubmitArray(ArrayRequest(1));
  const std::string array = Job(elements[0]).array_id();
  ASSERT_EQ(elements.size(), 2u);
  AnswerRun(Failure(InvalidArgument("No.")));
  EXPECT_EQ(State(elements[0]), "FAILED");
  Advance(std::chrono::seconds(30));
  EXPECT_EQ(Row(elements[0]).job().id(), "");
  EXPECT_EQ(State(elements[1]), "RUNNING");
  EXPECT_EQ(State(SubmitAfter(array)), "FAILED");
  Crash();
  Start();
  Advance(std::chrono::seconds(1));
  v1::SubmitRequest after = Request();
  after.add_after()->set_job_id(array);
  for (int i = 0; i < 2; ++i) {  // Twice, because the first look decides nothing.
    const auto refused = Submit(after);
    Prepare();
    Pump();
    ASSERT_EQ(refused->code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(refused->outcome->status),
                ::testing::MatchesRegex("1 of the 2 elements of array-.* are no longer stored.*"));
  }
  AnswerRun(Result(kOutput));
}

// The dependencies of all elements together have a limit, and are refused before anything is read.
TEST_F(RestartTest, ArraysWaitForSoMuchAtMost) {
  config_.jobs_array_max = 10'000;
  Restart();
  v1::SubmitRequest request = ArrayRequest(1);
  request.mutable_array()->set_first(0);
  request.mutable_array()->set_last(1'999);
  for (int i = 0; i < 51; ++i) {
    request.add_after()->set_job_id("job-" + std::to_string(i));
  }
  const auto refused = Submit(request);
  ASSERT_EQ(refused->code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused->outcome->status), HasSubstr("102000 dependencies in all, of at most 100000"));
}

// An element gets its index as input and symbol; the elements share one request; only so many run at a time, in order.
TEST_F(RestartTest, RunsArrays) {
  with_index_ = true;
  v1::SubmitRequest request = ArrayRequest(20, 2);
  request.mutable_array()->set_first(10);
  request.mutable_array()->set_step(5);
  request.mutable_array()->set_symbol("n");
  request.add_inputs()->set_name("i");
  request.mutable_inputs(1)->set_array_index(true);
  const std::vector<std::string> ids = SubmitArray(request);
  ASSERT_EQ(ids.size(), 3u);
  ASSERT_EQ(OpenRuns().size(), 2u);
  EXPECT_EQ(State(ids[2]), "ACCEPTED");
  EXPECT_THAT(Job(ids[2]).waits_for(), HasSubstr("at most 2 elements of " + Job(ids[0]).array_id()));
  EXPECT_EQ(Job(ids[1]).array_index(), 15u);
  EXPECT_THAT(spawner_.last().runs[1].inputs, ElementsAre("abcdefgh", std::string("\x0f\0\0\0", 4)));
  ExpectExactQuotas();
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(ids[2]), "RUNNING");
  ASSERT_EQ(OpenRuns().size(), 2u);
  EXPECT_THAT(spawner_.last().runs[2].inputs, ElementsAre("abcdefgh", std::string("\x14\0\0\0", 4)));
  // The elements are listed by array; only elements are found by id.
  v1::ListJobsRequest list;
  list.set_array_id(Job(ids[0]).array_id());
  v1::ListJobsResponse listed;
  ASSERT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, list, &listed)).ok());
  EXPECT_EQ(listed.jobs_size(), 3);
  v1::Job job;
  EXPECT_EQ(core_->job_reader().GetJob(*tenant_, Job(ids[0]).array_id(), &job).code(), StatusCode::kNotFound);
  // The array is cancelled as a whole.
  const auto cancelled = Cancel(Job(ids[0]).array_id());
  EXPECT_TRUE(cancelled->outcome->ok());
  EXPECT_EQ(cancelled->response.cancelled(), 2u);
  AnswerRun(Failure(Cancelled("Stopped.")));
  AnswerRun(Failure(Cancelled("Stopped.")));
  EXPECT_EQ(State(ids[0]), "SUCCEEDED");
  EXPECT_EQ(State(ids[1]), "CANCELLED");
  EXPECT_EQ(State(ids[2]), "CANCELLED");
  EXPECT_EQ(Cancel(Job(ids[0]).array_id())->response.cancelled(), 0u);
  EXPECT_EQ(Cancel("array-none")->outcome->status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(tenant_->arrays.empty());
  // One element is retried by itself, with its index.
  v1::RetryJobRequest retry;
  retry.set_job_id(ids[1]);
  const auto again = Retry(retry);
  ASSERT_EQ(again->code(), StatusCode::kOk) << again->outcome->status;
  EXPECT_EQ(Job(again->id()).array_id(), "");
  OpenRuns();
  EXPECT_THAT(spawner_.last().runs.back().inputs, ElementsAre("abcdefgh", std::string("\x0f\0\0\0", 4)));
  ExpectExactQuotas();
}

// An array is one submit to its key, before and after a restart.
TEST_F(RestartTest, ArraysHaveOneKey) {
  v1::SubmitRequest request = ArrayRequest(4);
  request.mutable_options()->set_idempotency_key("key");
  const std::vector<std::string> ids = SubmitArray(request);
  ASSERT_EQ(ids.size(), 5u);
  EXPECT_EQ(SubmitArray(request), ids);
  Restart();
  EXPECT_EQ(SubmitArray(request), ids);
  EXPECT_EQ(state_->database.Use()->at("ann").jobs, 5u);
}

// A restart in each state continues the job where it was: nothing is lost, and only lost attempts run again.
TEST_F(RestartTest, TakesUpEachState) {
  config_.jobs_running_per_tenant_max = 2;
  Restart();
  const std::string ended = SubmitJob(Request());
  AnswerRun(Result(kOutput));
  const std::string running = SubmitJob(Request());
  v1::SubmitRequest once = Request();
  once.mutable_retry()->set_attempts_max(1);
  const std::string last = SubmitJob(once);
  const std::string queued = SubmitJob(Request());
  const std::string cancelled = queued;
  const std::string waiting = SubmitAfter(queued);
  ASSERT_EQ(OpenRuns().size(), 2u);
  Crash();
  Start();
  Pump();
  EXPECT_EQ(State(ended), "SUCCEEDED");
  EXPECT_EQ(State(running), "ACCEPTED");
  EXPECT_THAT(Job(running).waits_for(), HasSubstr("The daemon ended while attempt 1 ran."));
  EXPECT_EQ(State(last), "DEAD");
  EXPECT_EQ(State(queued), "RUNNING");
  EXPECT_EQ(State(waiting), "ACCEPTED");
  ExpectExactQuotas();
  Advance(std::chrono::seconds(1));
  EXPECT_EQ(Job(running).attempt(), 2u);
  // The graph and the inputs come from disk: this daemon has prepared nothing itself.
  ASSERT_EQ(OpenRuns().size(), 2u);
  EXPECT_THAT(spawner_.last().runs[0].inputs, ElementsAre("abcdefgh"));
  AnswerRun(Result(kOutput));
  AnswerRun(Result(kOutput));
  AnswerRun(Result(kOutput));
  for (const std::string& id : {running, queued, waiting}) {
    EXPECT_EQ(State(id), "SUCCEEDED");
  }
  EXPECT_EQ(core_->operations(), 0u);
}

// A job that was not committed when the daemon died was not answered, and does not exist; a committed one does.
TEST_F(RestartTest, CrashesAroundTheInsert) {
  SubmitJob(Request());
  AnswerRun(Result(kOutput));
  for (const bool committed : {false, true}) {
    store_->hold_commits = true;
    const auto answer = Submit(Request(committed ? "yes" : "no"));
    Prepare();
    EXPECT_FALSE(answer->outcome.has_value());
    if (committed) {
      store_->StepCommit();
      EXPECT_EQ(answer->code(), StatusCode::kOk);
    }
    Crash();
    Start();
    EXPECT_EQ(Submit(Request(committed ? "yes" : "no"))->response.existed(), committed);
    Pump();
  }
}

// A running job for which a cancel was requested ends as cancelled; one in place and one that is late end as failed.
TEST_F(RestartTest, EndsWhatCannotGoOn) {
  const std::string cancelled = SubmitJob(Request());
  v1::SubmitRequest late = Request();
  late.mutable_options()->set_deadline_ns(1'000'000'000);
  const std::string running_late = SubmitJob(late);
  late.add_after()->set_job_id(cancelled);
  late.mutable_after(0)->set_condition(kEnded);
  const std::string waiting_late = SubmitJob(late);
  v1::CreateBufferRequest create;
  create.set_type(v1::ELEMENT_TYPE_F32);
  create.add_shape(2);
  const std::string buffer = core_->buffers().CreateBuffer(*tenant_, create)->id();
  v1::SubmitRequest request = Request();
  request.add_outputs()->set_name("y");
  request.mutable_outputs(0)->set_buffer_id(buffer);
  const std::string to_buffer = SubmitJob(request);
  request.mutable_inputs(0)->mutable_buffer()->set_buffer_id(buffer);
  const std::string in_place = SubmitJob(request);
  ASSERT_EQ(OpenRuns().size(), 4u);
  Cancel(cancelled);
  Crash();
  clock_.Advance(std::chrono::seconds(2));
  Start();
  Pump();
  EXPECT_EQ(State(cancelled), "CANCELLED");
  EXPECT_EQ(State(running_late), "FAILED");
  EXPECT_EQ(Job(running_late).error().code(), static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(State(waiting_late), "EXPIRED");
  EXPECT_EQ(State(in_place), "FAILED");
  Advance(std::chrono::seconds(1));
  EXPECT_EQ(State(to_buffer), "FAILED");  // Its buffer ended with the daemon.
  EXPECT_EQ(Job(to_buffer).error().code(), static_cast<int>(StatusCode::kDataLoss));
  EXPECT_THAT(Job(to_buffer).error().message(), HasSubstr(buffer));
  ExpectExactQuotas();
}

// A wall clock that jumps makes waits shorter or longer, within their limits, and loses nothing.
TEST_F(RestartTest, SurvivesClockJumps) {
  for (const int64_t jump : {-3'600'000'000'000, 3'600'000'000'000}) {
    const std::string id = SubmitJob(Request());
    ASSERT_EQ(OpenRuns().size(), 1u);
    Die();
    EXPECT_EQ(State(id), "ACCEPTED");
    clock_.JumpWall(jump);
    Crash();
    Start();
    Advance(std::chrono::minutes(2));
    if (State(id) != "EXPIRED" && State(id) != "FAILED") {
      AnswerRun(Result(kOutput));
      EXPECT_EQ(State(id), "SUCCEEDED");
    }
  }
}

// A clock that is wrong for a while, by years, drops no result and forgets no key: ages are trusted again a day after.
TEST_F(RestartTest, ClockJumpsDropNothing) {
  const int64_t jump = int64_t{10} * 365 * 86'400'000'000'000;
  const auto first = Submit(Request("key"));
  Prepare();
  AnswerRun(Result(kOutput));
  const auto pass = [&](Duration time, Duration step) {
    for (Duration passed{0}; passed < time; passed += step) {
      Advance(step);
    }
  };
  pass(std::chrono::hours(2), std::chrono::minutes(1));
  for (const int64_t by : {jump, -2 * jump, jump}) {
    clock_.JumpWall(by);
    pass(std::chrono::minutes(30), std::chrono::seconds(10));
    EXPECT_EQ(State(first->id()), "SUCCEEDED");
  }
  // A restart while it is wrong does not either.
  clock_.JumpWall(jump);
  Restart();
  pass(std::chrono::minutes(30), std::chrono::seconds(10));
  EXPECT_EQ(State(first->id()), "SUCCEEDED");
  EXPECT_TRUE(Submit(Request("key"))->response.existed());
  clock_.JumpWall(-jump);
  pass(std::chrono::hours(23), std::chrono::minutes(1));
  EXPECT_EQ(State(first->id()), "SUCCEEDED");
  pass(std::chrono::hours(2), std::chrono::minutes(1));
  v1::Job job;
  EXPECT_EQ(core_->job_reader().GetJob(*tenant_, first->id(), &job).code(), StatusCode::kNotFound);
  EXPECT_FALSE(Submit(Request("key"))->response.existed());
}

// The key of a job whose row had to make room outlives a wrong clock too: the job does not run twice.
TEST_F(RestartTest, ClockJumpsForgetNoKeys) {
  config_.jobs_kept_max = 0;
  Restart();
  const auto first = Submit(Request("key"));
  Prepare();
  AnswerRun(Result(kOutput));
  Advance(std::chrono::seconds(11));
  ASSERT_EQ(Row(first->id()).job().id(), "");
  clock_.JumpWall(int64_t{365} * 86'400'000'000'000);
  for (int i = 0; i < 100; ++i) {
    Advance(std::chrono::seconds(10));
  }
  EXPECT_TRUE(Submit(Request("key"))->response.existed());
}

// A machine that starts with a wrong clock has a minute to learn the time before deadlines end jobs; they wait for it.
TEST_F(RestartTest, LooksAgainBeforeExpiring) {
  for (const bool is_set_right : {false, true}) {
    SCOPED_TRACE(is_set_right ? "set right" : "stays");
    config_.jobs_running_per_tenant_max = 1;
    Restart();
    const std::string running = SubmitJob(Request()), queued = SubmitJob(Request());
    ASSERT_EQ(OpenRuns().size(), 1u);
    Crash();
    config_.jobs_running_per_tenant_max = 2;  // Only the doubt keeps the other job from starting.
    clock_.JumpWall(7'200'000'000'000);
    Start();
    Advance(std::chrono::seconds(58));
    EXPECT_EQ(State(running), "ACCEPTED");
    EXPECT_EQ(State(queued), "ACCEPTED");
    if (is_set_right) {
      clock_.JumpWall(-7'200'000'000'000);
    }
    Advance(std::chrono::seconds(2));
    if (is_set_right) {
      AnswerRun(Result(kOutput));
      AnswerRun(Result(kOutput));
    }
    EXPECT_EQ(State(running), is_set_right ? "SUCCEEDED" : "FAILED");
    EXPECT_EQ(State(queued), is_set_right ? "SUCCEEDED" : "EXPIRED");
  }
}

// A drain starts nothing new and keeps waiting jobs; an attempt that is broken off is not counted as spent.
TEST_F(RestartTest, Drains) {
  config_.jobs_running_per_tenant_max = 2;
  Restart();
  v1::SubmitRequest once = Request();
  once.mutable_retry()->set_attempts_max(1);
  const std::string ends = SubmitJob(once), broken = SubmitJob(once), queued = SubmitJob(once);
  ASSERT_EQ(OpenRuns().size(), 2u);
  core_->Drain();
  EXPECT_EQ(Submit(Request())->code(), StatusCode::kUnavailable);
  EXPECT_EQ(core_->operations(), 2u);
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(ends), "SUCCEEDED");
  EXPECT_EQ(State(queued), "ACCEPTED");
  EXPECT_THAT(Job(queued).waits_for(), HasSubstr("start again"));
  EXPECT_EQ(core_->operations(), 1u);
  EXPECT_FALSE(core_->Health().is_ready);
  core_->StopRunning();
  EXPECT_EQ(spawner_.last().cancels.size(), 1u);
  clock_.Advance(std::chrono::seconds(2));
  core_->OnTime();  // The run did not stop in time: its executor is killed.
  core_->OnTime();
  Pump();
  EXPECT_EQ(core_->operations(), 0u);
  EXPECT_EQ(Row(broken).job().state(), v1::JOB_STATE_ACCEPTED);
  EXPECT_EQ(Row(broken).attempts_spent(), 0u);
  Restart();
  EXPECT_TRUE(core_->Health().is_ready);
  ASSERT_EQ(OpenRuns().size(), 2u);
  AnswerRun(Result(kOutput));
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(broken), "SUCCEEDED");
  EXPECT_EQ(Job(broken).attempt(), 2u);
  EXPECT_EQ(State(queued), "SUCCEEDED");
}

// A stop without a drain works as well: running jobs go back to the queue.
TEST_F(RestartTest, StopsAtOnce) {
  const std::string id = SubmitJob(Request());
  ASSERT_EQ(OpenRuns().size(), 1u);
  Restart();
  EXPECT_EQ(Job(id).attempt(), 2u);
  EXPECT_EQ(Row(id).attempts_spent(), 1u);
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(id), "SUCCEEDED");
}

// Thousands of waiting jobs leave the queue together, and come back.
TEST_F(RestartTest, DrainsDeepQueues) {
  config_.jobs_queued_per_tenant_max = 5'000;
  config_.jobs_array_max = 5'000;
  Restart();
  const auto ids = SubmitArray(ArrayRequest(3'999));
  ASSERT_EQ(ids.size(), 4'000u);
  core_->Drain();
  Restart();
  EXPECT_EQ(State(ids.back()), "QUEUED");
  ASSERT_EQ(OpenRuns().size(), 16u);
  EXPECT_EQ(Cancel(Job(ids[0]).array_id())->response.cancelled(), 4'000u);
  for (int i = 0; i < 16; ++i) {
    AnswerRun(Failure(Cancelled("Stopped.")));
  }
  EXPECT_EQ(State(ids.back()), "CANCELLED");
  EXPECT_TRUE(tenant_->jobs.empty());
  ExpectExactQuotas();
}

// After a write with an unknown outcome nothing is answered any more; the next daemon knows the outcome.
TEST(BrokenStoreTest, AcknowledgesNothing) {
  class Broken : public RestartTest {
   public:
    void TestBody() override {}
    void Check(bool applied) {
      End();
      bool breaks = false;
      MemoryJobDatabaseFaults faults;
      const auto fail = [&](std::span<const JobWrite>) { return breaks ? DataLoss("EIO.") : absl::OkStatus(); };
      (applied ? faults.after_commit : faults.before_commit) = fail;
      state_ = std::make_unique<testing::StoredState>(faults);
      Start();
      const std::string id = SubmitJob(Request());
      ASSERT_EQ(OpenRuns().size(), 1u);
      breaks = true;
      AnswerRun(Result(kOutput));
      EXPECT_EQ(State(id), "RUNNING");
      const auto cancelled = Cancel(id);
      EXPECT_FALSE(cancelled->outcome.has_value() && cancelled->outcome->ok());
      const auto refused = Submit(Request("key"));
      EXPECT_EQ(refused->code(), StatusCode::kUnavailable);
      EXPECT_TRUE(refused->outcome->detail->retryable());
      EXPECT_FALSE(core_->Health().is_ready);
      Crash();
      breaks = false;
      state_->database.Reopen();
      Start();
      Pump();
      EXPECT_EQ(State(id), applied ? "SUCCEEDED" : "ACCEPTED");
      Advance(std::chrono::seconds(1));
      if (!applied) {
        AnswerRun(Result(kOutput));
      }
      EXPECT_EQ(State(id), "SUCCEEDED");
      ExpectExactQuotas();
    }
  };
  Broken().Check(/*applied=*/false);
  Broken().Check(/*applied=*/true);
}

// Random submits, answers, deaths, cancels, time, crashes and drains: every job ends once, and quotas are exact.
TEST(RandomJobsTest, AllEnd) {
  class Random : public RestartTest {
   public:
    explicit Random(uint64_t seed) : draw_(seed) {}
    void TestBody() override {}
    void Run() {
      config_.jobs_running_per_tenant_max = 3;
      config_.jobs_queued_per_tenant_max = 12;
      config_.executor_crashes_max = 4;
      Restart();
      for (int step = 0; step < 120; ++step) {
        Step();
        ASSERT_FALSE(HasFailure());
      }
      Heal();
    }

   private:
    void Step() {
      const uint64_t what = draw_.Below(100);
      if (what < 35) {
        v1::SubmitRequest request = draw_.Below(6) == 0
                                        ? ArrayRequest(draw_.Below(4), draw_.Below(3) == 0 ? 1 : 0)
                                        : Request(draw_.Below(3) == 0 ? "k" + std::to_string(step_) : "");
        if (!ids_.empty() && draw_.Below(3) == 0) {
          request.add_after()->set_job_id(ids_[draw_.Below(ids_.size())]);
          request.mutable_after(0)->set_condition(static_cast<v1::JobDependency::Condition>(draw_.Below(4)));
        }
        const auto answer = Submit(request);
        Prepare();
        if (answer->code() == StatusCode::kOk && answer->outcome.has_value()) {
          ids_.push_back(answer->id());
        }
      } else if (what < 65) {
        const auto open = OpenRuns();
        if (!open.empty()) {
          const auto& [executor, index] = open[draw_.Below(open.size())];
          executor->AnswerRun(draw_.Below(4) == 0 ? Failure(Aborted("A trap.")) : Result(Bytes()), index);
          Pump();
        }
      } else if (what < 72) {
        if (!spawner_.executors().empty()) {
          Die();
        }
      } else if (what < 82) {
        if (!ids_.empty()) {
          Cancel(ids_[draw_.Below(ids_.size())]);
        }
      } else if (what < 94) {
        Advance(std::chrono::milliseconds(draw_.Below(2'000)));
      } else if (what < 97) {
        store_->hold_commits = draw_.Below(2) == 0;
        Crash();
        Start();
      } else {
        core_->Drain();
        Restart();
      }
      if (draw_.Below(10) == 0) {
        store_->hold_commits = !store_->hold_commits;
      }
      if (!store_->hold_commits) {
        Pump();
        if (store_->Health().pending_writes == 0 && tenant_->pending_keys.empty() && core_->operations() == 0) {
          ExpectExactQuotas();
        }
      }
      ++step_;
    }
    void Heal() {
      store_->hold_commits = store_->hold_posted = false;
      Pump();
      for (int round = 0; round < 500 && !tenant_->jobs.empty(); ++round) {
        while (!OpenRuns().empty()) {
          AnswerRun(Result(kOutput));
        }
        Advance(std::chrono::seconds(5));
      }
      for (const std::string& id : ids_) {
        EXPECT_TRUE(IsTerminal(Job(id).state())) << id << " is " << State(id) << ": " << Job(id).waits_for();
      }
      EXPECT_TRUE(tenant_->jobs.empty());
      EXPECT_TRUE(tenant_->arrays.empty());
      EXPECT_EQ(tenant_->dependencies.size(), 0u);
      EXPECT_EQ(core_->operations(), 0u);
      ExpectExactQuotas();
    }
    std::string Bytes() { return std::string(draw_.Below(3) == 0 ? 50'000 : 8, 'r'); }

    SeededRng draw_;
    uint64_t step_ = 0;
    std::vector<std::string> ids_;
  };
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    random.Run();
    if (HasFailure()) {
      return;
    }
  }
}

// A large request is a file of the job, shared by equal requests, and the database has its hash: it comes back after a
// restart, a retry has its own, and it is removed with the last job that needs it.
TEST_F(RestartTest, LargeRequestsAreBlobs) {
  v1::SubmitRequest request = Request();
  v1::Tensor& tensor = *request.mutable_inputs(0)->mutable_tensor();
  tensor.set_shape(0, 5'000);
  tensor.set_data(std::string(20'000, 'L'));
  const auto blob_bytes = [this] {
    std::vector<uint64_t> sizes;
    for (const DiskEntry& part : state_->disk.List("/blobs/ann").value_or(std::vector<DiskEntry>())) {
      const std::vector<DiskEntry> files = *state_->disk.List("/blobs/ann/" + part.name);
      for (const DiskEntry& file : files) {
        sizes.push_back(file.size_bytes);
      }
    }
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  };
  config_.jobs_running_per_tenant_max = 1;
  core_->SetConfig(config_);
  const std::string first = SubmitJob(request), second = SubmitJob(request), small = SubmitJob(Request());
  EXPECT_EQ(blob_bytes().size(), 2u);  // The graph, and the request.
  EXPECT_GT(blob_bytes().back(), 20'000u);
  EXPECT_LT(state_->jobs().ReadRequest("ann", first)->ByteSizeLong(), 100u);
  EXPECT_EQ(state_->jobs().ReadRequest("ann", small)->request_bytes(), 0u);
  EXPECT_GT(Row(first).stored_bytes(), 20'000u);
  Crash();
  Start();
  ASSERT_EQ(OpenRuns().size(), 1u);  // The second: the first one's attempt was lost, and it waits a moment.
  EXPECT_THAT(spawner_.last().runs.back().inputs, ElementsAre(std::string(20'000, 'L')));
  for (int i = 0; i < 3; ++i) {
    AnswerRun(Result(kOutput));
    Advance(std::chrono::seconds(5));
  }
  v1::RetryJobRequest retry;
  retry.set_job_id(second);
  (*retry.mutable_options()->mutable_labels())["again"] = "yes";  // A different request.
  const AnsweredRef again = Retry(retry);
  ASSERT_EQ(again->code(), StatusCode::kOk) << again->outcome->status;
  EXPECT_EQ(blob_bytes().size(), 3u);
  ASSERT_EQ(OpenRuns().size(), 1u);
  EXPECT_THAT(spawner_.last().runs.back().inputs, ElementsAre(std::string(20'000, 'L')));
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(again->id()), "SUCCEEDED");
  ExpectExactQuotas();
  for (const std::string& id : {first, again->id()}) {
    store_->Write(DropJob{"ann", id, true}, [](const WriteResult& result) { EXPECT_TRUE(result.status.ok()); });
    Pump();
    EXPECT_EQ(blob_bytes().size(), id == first ? 3u : 2u);  // The second needs the first one's file too.
  }
  store_->Write(DropJob{"ann", second, false}, [](const WriteResult& result) { EXPECT_TRUE(result.status.ok()); });
  Pump();
  EXPECT_EQ(blob_bytes().size(), 1u);
  retry.clear_options();
  EXPECT_THAT(Message(Retry(retry)->outcome->status), HasSubstr("dropped to make room"));
}

// A large request whose file is damaged or gone ends the job with an error that says so.
TEST_F(RestartTest, DamagedRequestsEndTheirJobs) {
  v1::SubmitRequest request = Request();
  v1::Tensor& tensor = *request.mutable_inputs(0)->mutable_tensor();
  tensor.set_shape(0, 5'000);
  tensor.set_data(std::string(20'000, 'L'));
  config_.jobs_running_per_tenant_max = 1;
  core_->SetConfig(config_);
  SubmitJob(Request());
  const std::string id = SubmitJob(request);
  const StoredRequest stored = *state_->jobs().ReadRequest("ann", id);
  Sha256 hash;
  std::copy(stored.request_sha256().begin(), stored.request_sha256().end(), hash.bytes.begin());
  const std::string hex = ToHex(hash);
  ASSERT_TRUE(state_->disk.Remove("/blobs/ann/" + hex.substr(0, 2) + "/" + hex).ok());
  AnswerRun(Result(kOutput));
  OpenRuns();
  EXPECT_EQ(State(id), "FAILED");
  EXPECT_EQ(Job(id).error().code(), static_cast<int>(StatusCode::kDataLoss)) << Job(id).error().message();
  v1::RetryJobRequest retry;
  retry.set_job_id(id);
  EXPECT_EQ(Retry(retry)->code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hpvm::server
