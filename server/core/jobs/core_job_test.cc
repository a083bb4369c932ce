// SPDX-License-Identifier: Apache-2.0
// Tests jobs from the request to their end: the order of writes and messages, retries, cancels, limits, keys.
#include <algorithm>

#include "server/testing/job_fixture.h"
#include "server/testing/steps.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using testing::FakeExecutor;
using ::testing::HasSubstr;
using JobTest = testing::JobFixture;

constexpr char kOutput[] = "ABCDEFGH";

// Nothing is acknowledged, sent or shown before it is on disk.
TEST_F(JobTest, WritesBeforeItTells) {
  const auto warm_up = SubmitJob(Request());
  AnswerRun(Result(kOutput));
  store_->writes.clear();
  store_->hold_commits = store_->hold_posted = true;

  const auto answer = Submit(Request());
  EXPECT_FALSE(store_->StepPosted());  // The graph and its module are stored since the first job.
  EXPECT_THAT(store_->writes, ElementsAre("insert 1"));
  EXPECT_FALSE(answer->outcome.has_value());
  ASSERT_TRUE(store_->StepCommit());
  ASSERT_TRUE(answer->outcome.has_value());
  EXPECT_EQ(answer->response.job().state(), v1::JOB_STATE_QUEUED);
  const std::string id = answer->id();
  EXPECT_THAT(store_->writes, ElementsAre("insert 1", "change RUNNING"));
  EXPECT_EQ(State(id), "QUEUED");
  EXPECT_EQ(spawner_.executors().back()->runs.size(), 1u);  // The first job's.
  ASSERT_TRUE(store_->StepCommit());
  EXPECT_EQ(State(id), "RUNNING");
  EXPECT_EQ(spawner_.executors().back()->runs.size(), 1u);
  ASSERT_TRUE(store_->StepPosted());  // Reads the request.
  ASSERT_EQ(spawner_.executors().back()->runs.size(), 2u);
  EXPECT_THAT(spawner_.executors().back()->runs[1].inputs, ElementsAre("abcdefgh"));
  spawner_.executors().back()->AnswerRun(Result(kOutput));
  EXPECT_EQ(State(id), "RUNNING");
  EXPECT_EQ(core_->job_reader().FindOutput(*tenant_, id, "y").status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(store_->StepCommit());
  EXPECT_EQ(State(id), "SUCCEEDED");
  EXPECT_EQ(core_->job_reader().FindOutput(*tenant_, id, "y")->inline_bytes, kOutput);
  EXPECT_EQ(core_->operations(), 0u);
  ExpectExactQuotas();
}

// A lost attempt is tried again after a growing pause, and the last one makes the job DEAD, with each loss listed.
TEST_F(JobTest, RetriesWhatIsLost) {
  config_.executor_crashes_max = 100;
  Restart();
  const std::string id = SubmitJob(Request());
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const auto open = OpenRuns();
    ASSERT_EQ(open.size(), 1u) << attempt;
    EXPECT_EQ(open[0].first->runs[open[0].second].is_last_chance, attempt == 3);
    EXPECT_EQ(Job(id).attempt(), static_cast<uint32_t>(attempt));
    Die();
    if (attempt == 3) {
      break;
    }
    const v1::Job waiting = Job(id);
    EXPECT_EQ(waiting.state(), v1::JOB_STATE_ACCEPTED);
    EXPECT_THAT(waiting.waits_for(), HasSubstr("Attempt " + std::to_string(attempt) + " was lost"));
    EXPECT_GT(waiting.not_before_unix_ns(), clock_.WallNs());
    EXPECT_LE(waiting.not_before_unix_ns(), clock_.WallNs() + 100'000'000 * attempt);
    Advance(std::chrono::milliseconds(40 * attempt));
    EXPECT_TRUE(OpenRuns().empty());
    Advance(std::chrono::milliseconds(60 * attempt));
  }
  const v1::Job dead = Job(id);
  EXPECT_EQ(dead.state(), v1::JOB_STATE_DEAD);
  EXPECT_EQ(dead.lost_attempts_size(), 3);
  EXPECT_THAT(dead.error().message(), HasSubstr("Each of the job's 3 attempts was lost"));
  EXPECT_THAT(dead.error().message(), HasSubstr("signal 9"));
  ExpectExactQuotas();
  // A job whose attempt is lost and then succeeds.
  const std::string second = SubmitJob(Request());
  OpenRuns();
  Die();
  Advance(std::chrono::seconds(1));
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(second), "SUCCEEDED");
  EXPECT_EQ(Job(second).attempt(), 2u);
  EXPECT_EQ(Job(second).lost_attempts(0).attempt(), 1u);
}

// Failures of the job's own are final at once.
TEST_F(JobTest, DoesNotRetryItsOwnFaults) {
  for (const Status& status : {Aborted("Node \"double\" trapped."), InvalidArgument("Wrong shape."),
                               ResourceExhausted("Too large."), Internal("A bug.")}) {
    const std::string id = SubmitJob(Request());
    AnswerRun(Failure(status));
    const v1::Job job = Job(id);
    EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(job.error().code(), static_cast<int>(status.code()));
    EXPECT_EQ(job.attempt(), 1u);
    v1::ErrorDetail detail;
    ASSERT_TRUE(job.error().details(0).UnpackTo(&detail));
    EXPECT_EQ(detail.job_id(), id);
  }
}

// A job that writes a buffer that it reads has one attempt.
TEST_F(JobTest, InPlaceHasOneAttempt) {
  v1::CreateBufferRequest create;
  create.set_type(v1::ELEMENT_TYPE_F32);
  create.add_shape(2);
  const v1::Buffer buffer = *core_->buffers().CreateBuffer(*tenant_, create);
  v1::SubmitRequest request = Request();
  request.mutable_inputs(0)->mutable_buffer()->set_buffer_id(buffer.id());
  request.add_outputs()->set_name("y");
  request.mutable_outputs(0)->set_buffer_id(buffer.id());
  const std::string id = SubmitJob(request);
  ASSERT_EQ(OpenRuns().size(), 1u);
  Die();
  EXPECT_EQ(State(id), "FAILED");
  EXPECT_THAT(Job(id).error().message(), HasSubstr("writes a buffer that it reads"));
}

// While too many executors have crashed no attempt is spent, and nothing is written.
TEST_F(JobTest, WaitsForTheCrashPause) {
  const std::string first = SubmitJob(Request());
  v1::SubmitRequest once = Request();
  once.mutable_retry()->set_attempts_max(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_FALSE(OpenRuns().empty());
    Die();
    Advance(std::chrono::seconds(1));
  }
  EXPECT_EQ(State(first), "DEAD");
  const std::string second = SubmitJob(once);
  store_->writes.clear();
  EXPECT_EQ(State(second), "ACCEPTED");
  EXPECT_THAT(Job(second).waits_for(), HasSubstr("may start again"));
  Advance(std::chrono::seconds(30));
  EXPECT_EQ(State(second), "ACCEPTED");
  EXPECT_EQ(Job(second).attempt(), 0u);
  EXPECT_THAT(store_->writes, ::testing::Each("forget"));  // Written by retention.
  Advance(std::chrono::seconds(30));
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(second), "SUCCEEDED");
}

// A cancel in each state is on disk before it is answered, and the job ends in the state that is true.
TEST_F(JobTest, CancelsInEachState) {
  config_.jobs_running_per_tenant_max = 1;
  Restart();
  const std::string running = SubmitJob(Request());
  const std::string queued = SubmitJob(Request());
  const std::string waiting = SubmitAfter(running);
  EXPECT_EQ(State(queued), "QUEUED");
  EXPECT_EQ(Job(queued).waits_for(), "Waits for its turn: the tenant runs 1 jobs at a time, of at most 1.");
  EXPECT_EQ(State(waiting), "ACCEPTED");
  store_->hold_commits = true;
  for (const std::string& id : {queued, waiting}) {
    const auto answer = Cancel(id);
    EXPECT_FALSE(answer->outcome.has_value());
    store_->StepCommit();
    ASSERT_TRUE(answer->outcome.has_value());
    EXPECT_TRUE(answer->outcome->ok());
    EXPECT_EQ(answer->response.cancelled(), 1u);
    EXPECT_EQ(answer->response.job().state(), v1::JOB_STATE_CANCELLED);
  }
  // While the job runs, the cancel goes to disk, then the executor is asked.
  const auto answer = Cancel(running);
  const auto again = Cancel(running);
  EXPECT_TRUE(spawner_.last().cancels.empty());
  EXPECT_FALSE(answer->outcome.has_value());
  store_->StepCommit();
  EXPECT_TRUE(answer->outcome->ok());
  EXPECT_TRUE(again->outcome->ok());
  EXPECT_TRUE(answer->response.job().cancel_requested());
  EXPECT_EQ(spawner_.last().cancels.size(), 1u);
  spawner_.last().AnswerRun(Failure(Cancelled("Stopped.")));
  store_->hold_commits = false;
  Pump();
  EXPECT_EQ(State(running), "CANCELLED");
  const auto late = Cancel(running);  // Changes nothing.
  EXPECT_EQ(late->response.cancelled(), 0u);
  EXPECT_EQ(late->response.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Cancel("job-none")->outcome->status.code(), StatusCode::kNotFound);
  EXPECT_EQ(core_->operations(), 0u);
  ExpectExactQuotas();
}

// A cancel at each step between the turn and the end is never sent twice and never left over, and leads to one
// terminal state.
TEST_F(JobTest, CancelsAtEachStep) {
  SubmitJob(Request());
  AnswerRun(Result(kOutput));
  const std::string large(40'000, 'z');  // An output that becomes a blob.
  struct Case {
    const char* name;
    int steps;  // Number of the job's steps before the cancel.
    const char* want;
  };
  const Case cases[] = {{"WhileStarting", 0, "CANCELLED"},
                        {"WhileReading", 1, "CANCELLED"},
                        {"WhileRunning", 2, "CANCELLED"},
                        {"WhileStoring", 3, "SUCCEEDED"},
                        {"WhileEnding", 4, "SUCCEEDED"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    store_->hold_commits = store_->hold_posted = true;
    const auto submitted = Submit(Request());
    store_->StepPosted();
    store_->StepCommit();
    const std::string id = submitted->id();
    const size_t runs = spawner_.executors().back()->runs.size();
    if (c.steps >= 1) {
      store_->StepCommit();  // RUNNING.
    }
    if (c.steps >= 2) {
      store_->StepPosted();  // The request is read and sent.
      ASSERT_EQ(spawner_.executors().back()->runs.size(), runs + 1);
    }
    if (c.steps >= 3) {
      spawner_.executors().back()->AnswerRun(Result(large));
    }
    if (c.steps >= 4) {
      store_->StepPosted();  // The output is stored; SUCCEEDED is being written.
    }
    const auto cancelled = Cancel(id);
    EXPECT_FALSE(cancelled->outcome.has_value());
    store_->hold_commits = store_->hold_posted = false;
    Pump();
    if (c.steps == 2) {
      EXPECT_EQ(spawner_.executors().back()->cancels.size(), 1u);
      spawner_.executors().back()->AnswerRun(Failure(Cancelled("Stopped.")));
      Pump();
    }
    ASSERT_TRUE(cancelled->outcome.has_value());
    EXPECT_TRUE(cancelled->outcome->ok());
    EXPECT_EQ(State(id), c.want);
    EXPECT_EQ(spawner_.executors().back()->runs.size(), runs + (c.steps >= 2 ? 1 : 0));
    EXPECT_EQ(core_->operations(), 0u);
    ExpectExactQuotas();
  }
}

// The executor's death during a cancel ends the job as cancelled, and is no lost attempt.
TEST_F(JobTest, DeathAfterCancel) {
  const std::string id = SubmitJob(Request());
  ASSERT_EQ(OpenRuns().size(), 1u);
  store_->hold_commits = true;
  const auto answer = Cancel(id);
  Die();
  store_->hold_commits = false;
  Pump();
  EXPECT_TRUE(answer->outcome->ok());
  EXPECT_EQ(State(id), "CANCELLED");
}

// The deadline ends a job in each state; it is EXPIRED only when no attempt was ever begun.
TEST_F(JobTest, KeepsDeadlines) {
  config_.jobs_running_per_tenant_max = 1;
  config_.executor_crashes_max = 100;
  Restart();
  v1::SubmitRequest request = Request();
  request.mutable_options()->set_deadline_ns(1'000'000'000);
  const std::string running = SubmitJob(request);
  const std::string queued = SubmitJob(request);
  request.add_after()->set_job_id(running);
  const std::string waiting = SubmitJob(request);
  ASSERT_EQ(OpenRuns().size(), 1u);
  Advance(std::chrono::milliseconds(1'001));
  EXPECT_EQ(State(queued), "EXPIRED");
  EXPECT_EQ(State(waiting), "EXPIRED");
  EXPECT_EQ(spawner_.last().cancels.size(), 1u);
  AnswerRun(Failure(Cancelled("Stopped.")));
  EXPECT_EQ(State(running), "FAILED");
  EXPECT_EQ(Job(running).error().code(), static_cast<int>(StatusCode::kDeadlineExceeded));
  // The deadline passes between two attempts.
  request.clear_after();
  request.mutable_options()->set_deadline_ns(40'000'000);
  const std::string between = SubmitJob(request);
  ASSERT_EQ(OpenRuns().size(), 1u);
  Die();
  EXPECT_EQ(State(between), "ACCEPTED");
  Advance(std::chrono::milliseconds(41));
  EXPECT_EQ(State(between), "FAILED");
  EXPECT_EQ(Job(between).error().code(), static_cast<int>(StatusCode::kDeadlineExceeded));
  // The deadline passes while RUNNING is being written: the job is not sent.
  store_->hold_commits = true;
  const auto late = Submit(request);
  store_->StepCommit();
  clock_.Advance(std::chrono::milliseconds(41));
  core_->OnTime();
  store_->hold_commits = false;
  const size_t runs = spawner_.executors().back()->runs.size();
  Pump();
  EXPECT_EQ(State(late->id()), "FAILED");
  EXPECT_EQ(spawner_.executors().back()->runs.size(), runs);
  ExpectExactQuotas();
}

// The same key and request is one job: before the first answer, after it, after the end, after a restart, and with the
// same bytes in another buffer; a different request is answered with the job's id.
TEST_F(JobTest, HonoursKeys) {
  store_->hold_commits = true;
  const auto first = Submit(Request("key"));
  Prepare();
  const auto duplicate = Submit(Request("key"));
  EXPECT_FALSE(first->outcome.has_value());
  EXPECT_FALSE(duplicate->outcome.has_value());
  store_->hold_commits = false;
  Pump();
  EXPECT_FALSE(first->response.existed());
  EXPECT_TRUE(duplicate->response.existed());
  EXPECT_EQ(duplicate->id(), first->id());
  EXPECT_EQ(first->response.job().idempotency_key(), "key");
  AnswerRun(Result(kOutput));
  EXPECT_EQ(Submit(Request("key"))->response.job().state(), v1::JOB_STATE_SUCCEEDED);
  v1::SubmitRequest other = Request("key");
  other.set_repeat(2);
  const auto refused = Submit(other);
  EXPECT_EQ(refused->code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(refused->outcome->detail->job_id(), first->id());
  Restart();
  const auto after = Submit(Request("key"));
  EXPECT_EQ(after->id(), first->id());
  EXPECT_TRUE(after->response.existed());
  v1::CreateBufferRequest create;
  create.set_type(v1::ELEMENT_TYPE_F32);
  create.add_shape(2);
  const v1::Buffer buffer = *core_->buffers().CreateBuffer(*tenant_, create);
  const std::string bytes = "abcdefgh";
  ASSERT_TRUE(WriteAt(core_->buffers().OpenBuffer(*tenant_, buffer.id())->segment->fd.get(), 0,
                      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()})
                  .ok());
  v1::SubmitRequest by_buffer = Request("key");
  by_buffer.mutable_inputs(0)->mutable_buffer()->set_buffer_id(buffer.id());
  const auto same = Submit(by_buffer);
  EXPECT_EQ(same->code(), StatusCode::kOk) << same->outcome->status;
  EXPECT_EQ(same->id(), first->id());
  EXPECT_EQ(state_->database.Use()->at("ann").jobs, 1u);
  core_->Drain();  // A known key is answered all the same.
  EXPECT_TRUE(Submit(Request("key"))->response.existed());
  EXPECT_EQ(Submit(Request("new"))->code(), StatusCode::kUnavailable);
  ExpectExactQuotas();
}

// A key whose job's row is gone still reports the job's end.
TEST_F(JobTest, KeysOutliveRows) {
  config_.jobs_kept_max = 0;
  Restart();
  const auto first = Submit(Request("key"));
  Prepare();
  AnswerRun(Result(kOutput));
  Advance(std::chrono::seconds(11));
  EXPECT_EQ(state_->database.Use()->count("ann") == 0 ? 0 : state_->database.Use()->at("ann").jobs, 0u);
  const auto again = Submit(Request("key"));
  EXPECT_EQ(again->code(), StatusCode::kOk);
  EXPECT_TRUE(again->response.existed());
  EXPECT_EQ(again->id(), first->id());
  EXPECT_EQ(again->response.job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(tenant_->stored_job_bytes(), 0u);
}

// A request that fails uses up neither its key nor room.
TEST_F(JobTest, FailedSubmitsLeaveNothing) {
  const auto rejected = Submit(Request("key"));
  internal::Prepared reply;
  supervisor::testing::AddDiagnostic(reply, "/nodes", "There are no nodes (0).");
  spawner_.last().AnswerPrepare(reply);
  EXPECT_EQ(rejected->code(), StatusCode::kInvalidArgument);
  struct Case {
    const char* name;
    std::function<void(v1::SubmitRequest&)> spoil;
    StatusCode code;
  };
  const Case cases[] = {
      {"Unbound", [](auto& r) { r.clear_inputs(); }, StatusCode::kInvalidArgument},
      {"Twice", [](auto& r) { *r.add_inputs() = r.inputs(0); }, StatusCode::kInvalidArgument},
      {"NoPort", [](auto& r) { r.add_inputs()->set_name("z"); }, StatusCode::kInvalidArgument},
      {"Index", [](auto& r) { r.mutable_inputs(0)->set_array_index(true); }, StatusCode::kInvalidArgument},
      {"Dependency", [](auto& r) { r.add_after()->set_job_id("job-none"); }, StatusCode::kNotFound},
      {"ArrayDependency", [](auto& r) { r.add_after()->set_job_id("array-none"); }, StatusCode::kNotFound},
      {"Condition", [](auto& r) { r.add_after()->set_condition(static_cast<v1::JobDependency::Condition>(9)); },
       StatusCode::kInvalidArgument},
      {"Attempts", [](auto& r) { r.mutable_retry()->set_attempts_max(11); }, StatusCode::kInvalidArgument},
      {"Buffer", [](auto& r) { r.mutable_inputs(0)->mutable_buffer()->set_buffer_id("buf-none"); },
       StatusCode::kNotFound},
      {"Output", [](auto& r) { r.add_outputs()->set_buffer_id("buf-none"); }, StatusCode::kNotFound},
      {"Graph", [](auto& r) { r.mutable_document()->set_graph_sha256(std::string(64, 'b')); }, StatusCode::kNotFound},
      {"Handle", [](auto& r) { r.set_handle("graph-none"); }, StatusCode::kNotFound},
      {"Name", [](auto& r) { r.set_name(std::string(256, 'n')); }, StatusCode::kInvalidArgument},
      {"ArrayRange", [](auto& r) { r.mutable_array()->set_first(1); }, StatusCode::kInvalidArgument},
      {"ArraySize", [](auto& r) { r.mutable_array()->set_last(1'000); }, StatusCode::kResourceExhausted},
      {"Dependencies",
       [](auto& r) {
         for (int i = 0; i < 65; ++i) r.add_after()->set_job_id("job-none");
       },
       StatusCode::kResourceExhausted},
  };
  SubmitJob(Request("key"));
  AnswerRun(Result(kOutput));
  const auto use = state_->database.Use()->at("ann");
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    v1::SubmitRequest request = Request("other");
    c.spoil(request);
    const auto refused = Submit(request);
    Prepare();
    EXPECT_EQ(refused->code(), c.code) << (refused->outcome ? refused->outcome->status : Status());
    EXPECT_EQ(tenant_->waiting_jobs(), 0u);
    EXPECT_EQ(tenant_->stored_job_bytes(), use.stored_bytes);
    EXPECT_EQ(core_->operations(), 0u);
  }
  EXPECT_EQ(Submit(Request("other"))->code(), StatusCode::kOk);
  ExpectExactQuotas();
}

// Limits include requests in progress, are exact, and refuse with the time to come back.
TEST_F(JobTest, LimitsAreExact) {
  config_.jobs_running_per_tenant_max = 1;
  config_.jobs_queued_per_tenant_max = 3;
  config_.jobs_queued_max = 4;
  Restart();
  SubmitJob(Request());  // This job runs.
  ASSERT_EQ(OpenRuns().size(), 1u);
  store_->hold_commits = true;
  std::vector<AnsweredRef> answers;
  for (int i = 0; i < 4; ++i) {
    answers.push_back(Submit(Request()));
  }
  EXPECT_EQ(answers[3]->code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(answers[3]->outcome->detail->retryable());
  EXPECT_GT(answers[3]->outcome->detail->retry_after_ns(), 0u);
  store_->hold_commits = false;
  Pump();
  v1::SubmitRequest array = Request();
  array.mutable_array()->set_last(1);
  EXPECT_EQ(Submit(array)->code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Cancel(answers[0]->id())->outcome->ok());
  EXPECT_EQ(Submit(Request())->code(), StatusCode::kOk);
  EXPECT_EQ(Submit(Request())->code(), StatusCode::kResourceExhausted);
  tenant_ = *core_->tenants().FindTenant("bob");  // Another tenant, within the server's limit.
  graph_ = PutGraph("{\"hpvm\": 1}");
  for (const StatusCode want : {StatusCode::kOk, StatusCode::kOk}) {
    const auto answer = Submit(Request());
    Prepare();
    EXPECT_EQ(answer->code(), want);
  }
  EXPECT_EQ(Submit(Request())->code(), StatusCode::kResourceExhausted);
}

// Bytes on disk are limited and exact; a job whose outputs do not fit fails and gives its room back.
TEST_F(JobTest, StoredBytesAreLimited) {
  config_.jobs_stored_bytes_max = 100'000;
  Restart();
  const std::string small = SubmitJob(Request());
  AnswerRun(Result(std::string(60'000, 'a')));
  EXPECT_EQ(State(small), "SUCCEEDED");
  ExpectExactQuotas();
  EXPECT_GE(tenant_->stored_job_bytes(), 60'000u);
  const std::string large = SubmitJob(Request());
  AnswerRun(Result(std::string(60'000, 'b')));
  EXPECT_EQ(State(large), "FAILED");
  EXPECT_THAT(Job(large).error().message(), HasSubstr("does not fit"));
  ExpectExactQuotas();
  v1::SubmitRequest request = Request();
  request.mutable_inputs(0)->mutable_tensor()->set_shape(0, 15'000);
  request.mutable_inputs(0)->mutable_tensor()->set_data(std::string(60'000, 'c'));
  EXPECT_EQ(Submit(request)->code(), StatusCode::kResourceExhausted);
  ExpectExactQuotas();
}

// Input buffers keep their contents at the submit, whatever is written to them afterwards; large outputs are files.
TEST_F(JobTest, KeepsInputsAndOutputs) {
  config_.jobs_running_per_tenant_max = 1;
  Restart();
  v1::CreateBufferRequest create;
  create.set_type(v1::ELEMENT_TYPE_F32);
  create.add_shape(2);
  const v1::Buffer buffer = *core_->buffers().CreateBuffer(*tenant_, create);
  const auto write = [&](const std::string& bytes) {
    const Buffers::BufferAccess access = *core_->buffers().OpenBuffer(*tenant_, buffer.id());
    ASSERT_TRUE(
        WriteAt(access.segment->fd.get(), 0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
    ASSERT_TRUE(core_->buffers().FinishWrite(*tenant_, buffer.id(), access.segment).ok());
  };
  write("old-data");
  SubmitJob(Request());  // Keeps the turn.
  v1::SubmitRequest request = Request();
  request.mutable_inputs(0)->mutable_buffer()->set_buffer_id(buffer.id());
  const std::string id = SubmitJob(request);
  write("new-data");
  AnswerRun(Result(kOutput));
  ASSERT_EQ(OpenRuns().size(), 1u);
  EXPECT_THAT(spawner_.last().runs.back().inputs, ElementsAre("old-data"));
  std::string large(200'000, 'y');
  large[77'777] = '!';
  AnswerRun(Result(large));
  EXPECT_EQ(State(id), "SUCCEEDED");
  for (const bool restarted : {false, true}) {
    if (restarted) {
      Restart();
    }
    StatusOr<JobReader::StoredBytes> output = core_->job_reader().FindOutput(*tenant_, id, "y");
    ASSERT_TRUE(output.ok()) << output.status();
    ASSERT_NE(output->file, nullptr);
    EXPECT_EQ(output->header.size_bytes(), large.size());
    std::string got(large.size(), '?');
    EXPECT_EQ(*output->file->ReadAt(0, {reinterpret_cast<uint8_t*>(got.data()), got.size()}), large.size());
    EXPECT_EQ(got, large);
  }
}

// Outputs to buffers become visible when the end is on disk, with the generation that the job names.
TEST_F(JobTest, PublishesWithTheEnd) {
  v1::CreateBufferRequest create;
  create.set_type(v1::ELEMENT_TYPE_F32);
  create.add_shape(2);
  const v1::Buffer buffer = *core_->buffers().CreateBuffer(*tenant_, create);
  v1::SubmitRequest request = Request();
  request.add_outputs()->set_name("y");
  request.mutable_outputs(0)->set_buffer_id(buffer.id());
  const auto run = [&](const std::string& bytes) {
    const auto open = OpenRuns();
    const supervisor::MemorySlice slice = open.at(0).first->runs[open.at(0).second].outputs.at(0).memory;
    ASSERT_TRUE(WriteAt(slice.fd, 0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
    supervisor::RunReply reply;
    supervisor::testing::AddOutput(reply, "y", ElementType::kF32, {2}, 8);
    open[0].first->AnswerRun(std::move(reply), open[0].second);
    Pump();
  };
  const auto generation = [&] { return core_->buffers().OpenBuffer(*tenant_, buffer.id())->buffer.generation(); };
  const std::string first = SubmitJob(request);
  OpenRuns();
  store_->hold_commits = true;
  run("11112222");
  EXPECT_EQ(generation(), 1u);
  store_->hold_commits = false;
  Pump();
  EXPECT_EQ(State(first), "SUCCEEDED");
  EXPECT_EQ(generation(), 2u);
  EXPECT_EQ(Job(first).outputs(0).buffer().generation(), 2u);
  // The buffer is deleted meanwhile: the job succeeds, nobody has the data.
  const std::string second = SubmitJob(request);
  OpenRuns();
  EXPECT_TRUE(core_->buffers().DeleteBuffer(*tenant_, buffer.id()).ok());
  run("33334444");
  EXPECT_EQ(State(second), "SUCCEEDED");
  // The output goes to a new buffer.
  request.mutable_outputs(0)->set_new_buffer(true);
  const std::string third = SubmitJob(request);
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(third), "SUCCEEDED");
  EXPECT_TRUE(core_->buffers().OpenBuffer(*tenant_, Job(third).outputs(0).buffer().buffer_id()).ok());
}

// A full store refuses new jobs and keeps the outputs of jobs that end until there is room.
TEST_F(JobTest, WaitsForRoomOnDisk) {
  const std::string id = SubmitJob(Request());
  ASSERT_EQ(OpenRuns().size(), 1u);
  store_->put_failure = ResourceExhausted("The disk is full.");
  AnswerRun(Result(std::string(60'000, 'a')));
  EXPECT_EQ(State(id), "RUNNING");
  v1::CreateBufferRequest create;
  create.set_type(v1::ELEMENT_TYPE_F32);
  create.add_shape(2);
  v1::SubmitRequest large = Request();  // Its input goes to the disk, too.
  large.mutable_inputs(0)->mutable_buffer()->set_buffer_id(core_->buffers().CreateBuffer(*tenant_, create)->id());
  const auto refused = Submit(large);
  EXPECT_EQ(refused->code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(refused->outcome->detail->retryable());
  Advance(std::chrono::seconds(2));
  EXPECT_EQ(State(id), "RUNNING");
  EXPECT_EQ(core_->operations(), 1u);
  store_->put_failure = absl::OkStatus();
  Advance(std::chrono::seconds(2));
  EXPECT_EQ(State(id), "SUCCEEDED");
  ExpectExactQuotas();
  // A cancel releases a job that waits for room.
  const std::string second = SubmitJob(Request());
  ASSERT_EQ(OpenRuns().size(), 1u);
  store_->put_failure = ResourceExhausted("The disk is full.");
  AnswerRun(Result(std::string(60'000, 'a')));
  const auto cancelled = Cancel(second);
  Advance(std::chrono::seconds(2));
  EXPECT_TRUE(cancelled->outcome->ok());
  EXPECT_EQ(State(second), "CANCELLED");
  ExpectExactQuotas();
}

// RetryJob makes a new job of a finished one, with the old one's parts.
TEST_F(JobTest, RetriesFinishedJobs) {
  v1::SubmitRequest request = Request();
  request.set_name("mine");
  (*request.mutable_options()->mutable_labels())["a"] = "1";
  request.mutable_options()->set_priority(5);
  const std::string id = SubmitJob(request);
  v1::RetryJobRequest retry;
  retry.set_job_id(id);
  EXPECT_EQ(Retry(retry)->code(), StatusCode::kFailedPrecondition);  // The job has not ended.
  AnswerRun(Failure(Aborted("A trap.")));
  Restart();  // The retry reads the job from disk.
  (*retry.mutable_options()->mutable_labels())["b"] = "2";
  retry.mutable_options()->set_idempotency_key("again");
  const auto first = Retry(retry);
  ASSERT_EQ(first->code(), StatusCode::kOk) << first->outcome->status;
  EXPECT_NE(first->id(), id);
  const v1::Job job = Job(first->id());
  EXPECT_EQ(job.retry_of(), id);
  EXPECT_EQ(job.name(), "mine");
  EXPECT_EQ(job.priority(), 5);
  EXPECT_EQ(job.labels().size(), 2u);
  const auto duplicate = Retry(retry);
  EXPECT_TRUE(duplicate->response.existed());
  EXPECT_EQ(duplicate->id(), first->id());
  retry.set_job_id(first->id());
  EXPECT_EQ(Retry(retry)->code(), StatusCode::kAlreadyExists);
  AnswerRun(Result(kOutput));
  EXPECT_EQ(State(first->id()), "SUCCEEDED");
  retry.set_job_id("job-none");
  retry.mutable_options()->clear_idempotency_key();
  EXPECT_EQ(Retry(retry)->code(), StatusCode::kNotFound);
  ExpectExactQuotas();
}

// Jobs that were queued, run or ended in this daemon or an earlier one are watched alike to their end.
TEST_F(JobTest, Watches) {
  const std::string id = SubmitJob(Request());
  OpenRuns();
  int wakes = 0;
  const uint64_t key = *core_->job_reader().WatchJob(*tenant_, id, [&] { ++wakes; });
  EXPECT_NE(key, 0u);
  AnswerRun(Result(kOutput));
  EXPECT_GT(wakes, 0);
  core_->job_reader().Unwatch(*tenant_, id, key);
  const auto states = [&](const std::string& of) {
    std::vector<std::string> names;
    const auto batch = core_->job_reader().ReadEvents(*tenant_, of, 0, 100);
    for (const v1::JobEvent& event : batch.ok() ? batch->events : std::vector<v1::JobEvent>()) {
      if (event.has_job()) {
        names.push_back(testing::StateName(event.job().state()));
      }
    }
    EXPECT_TRUE(batch.ok() && batch->last);
    return names;
  };
  EXPECT_THAT(states(id), ElementsAre("ACCEPTED", "QUEUED", "RUNNING", "SUCCEEDED"));
  Restart();
  EXPECT_EQ(*core_->job_reader().WatchJob(*tenant_, id, [] {}), 0u);
  EXPECT_THAT(states(id), ElementsAre("SUCCEEDED"));
  EXPECT_EQ(core_->job_reader().WatchJob(*tenant_, "job-none", [] {}).status().code(), StatusCode::kNotFound);
  // A daemon that stops wakes its watchers.
  const std::string second = SubmitJob(Request());
  wakes = 0;
  const StatusOr<uint64_t> watch = core_->job_reader().WatchJob(*tenant_, second, [&] { ++wakes; });
  ASSERT_TRUE(watch.ok());
  uint64_t seen = core_->job_reader().ReadEvents(*tenant_, second, 0, 100)->events.back().sequence();
  core_->Stop();
  EXPECT_GT(wakes, 0);
  StatusOr<JobReader::EventBatch> batch = core_->job_reader().ReadEvents(*tenant_, second, seen, 100);
  while (batch.ok() && !batch->events.empty()) {
    seen = batch->events.back().sequence();
    batch = core_->job_reader().ReadEvents(*tenant_, second, seen, 100);
  }
  EXPECT_EQ(batch.status().code(), StatusCode::kUnavailable);
  // Otherwise the watcher would be woken again when the core goes.
  core_->job_reader().Unwatch(*tenant_, second, *watch);
}

// A tenant's many watched jobs displace the events of its own old jobs, and of no other tenant's.
TEST_F(JobTest, KeepsEventsOfEachTenant) {
  const auto watched = [&] {
    const std::string id = SubmitJob(Request());
    OpenRuns();
    core_->job_reader().Unwatch(*tenant_, id, *core_->job_reader().WatchJob(*tenant_, id, [] {}));
    AnswerRun(Result(kOutput));
    return id;
  };
  const auto events = [&](const TenantRef& tenant, const std::string& id) {
    return core_->job_reader().ReadEvents(*tenant, id, 0, 100)->events.size();
  };
  const TenantRef ann = tenant_;
  const std::string early = watched();
  const size_t all = events(ann, early);
  ASSERT_GT(all, 4u);
  tenant_ = *core_->tenants().FindTenant("bob");
  graph_ = PutGraph("{\"hpvm\": 1}");
  const std::string first = watched();
  std::string last;
  for (int i = 0; i < 1'000; ++i) {
    last = watched();
  }
  EXPECT_EQ(events(ann, early), all);
  EXPECT_EQ(events(tenant_, first), 1u);  // The end, read from the store.
  EXPECT_EQ(events(tenant_, last), all);
}

// Lists by state find jobs that have not ended after any number that have, page by page, newest first.
TEST_F(JobTest, ListsByState) {
  config_.jobs_running_per_tenant_max = 1;
  Restart();
  std::vector<std::string> queued;
  const std::string running = SubmitJob(Request());
  for (int i = 0; i < 3; ++i) {
    v1::SubmitRequest request = Request();
    (*request.mutable_options()->mutable_labels())["odd"] = i % 2 == 1 ? "yes" : "no";
    queued.insert(queued.begin(), SubmitJob(request));
  }
  for (int i = 0; i < 3; ++i) {
    Cancel(SubmitJob(Request()));
  }
  const auto list = [&](std::vector<v1::JobState> states, uint32_t page_size, const char* odd) {
    v1::ListJobsRequest request;
    request.mutable_states()->Add(states.begin(), states.end());
    request.set_page_size(page_size);
    if (odd != nullptr) {
      (*request.mutable_labels())["odd"] = odd;
    }
    std::vector<std::string> ids;
    for (int page = 0; page < 20; ++page) {
      v1::ListJobsResponse response;
      EXPECT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, request, &response)).ok());
      EXPECT_LE(response.jobs_size(), static_cast<int>(page_size));
      for (const v1::Job& job : response.jobs()) {
        ids.push_back(job.id());
      }
      if (response.next_page_token().empty()) {
        return ids;
      }
      request.set_page_token(response.next_page_token());
    }
    ADD_FAILURE() << "The pages do not end.";
    return ids;
  };
  EXPECT_EQ(list({v1::JOB_STATE_QUEUED}, 2, nullptr), queued);
  EXPECT_EQ(list({v1::JOB_STATE_QUEUED}, 3, nullptr), queued);
  EXPECT_EQ(list({v1::JOB_STATE_QUEUED}, 5, "yes"), std::vector<std::string>{queued[1]});
  EXPECT_EQ(list({v1::JOB_STATE_RUNNING}, 1, nullptr), std::vector<std::string>{running});
  EXPECT_EQ(list({v1::JOB_STATE_CANCELLED}, 2, nullptr).size(), 3u);
  EXPECT_EQ(list({v1::JOB_STATE_CANCELLED, v1::JOB_STATE_QUEUED}, 2, nullptr).size(), 6u);
  EXPECT_EQ(list({}, 4, nullptr).size(), 7u);
  EXPECT_TRUE(list({v1::JOB_STATE_ACCEPTED}, 2, nullptr).empty());
}

// The configuration in force is replaced as a whole; limits apply at once.
TEST_F(JobTest, TakesNewLimits) {
  config_.jobs_running_per_tenant_max = 1;
  Restart();
  SubmitJob(Request());  // This job runs.
  SubmitJob(Request());
  Config config = config_;
  config.jobs_queued_per_tenant_max = 1;
  const std::shared_ptr<const Config> before = core_->config();
  core_->SetConfig(config);
  EXPECT_EQ(before->jobs_queued_per_tenant_max, 1'000u);
  EXPECT_EQ(core_->config()->jobs_queued_per_tenant_max, 1u);
  EXPECT_EQ(Submit(Request())->code(), StatusCode::kResourceExhausted);
  config.jobs_queued_per_tenant_max = 10;
  config.limits_buffers_bytes_max = 4;
  core_->SetConfig(config);
  EXPECT_EQ(Submit(Request())->code(), StatusCode::kOk);
  v1::CreateBufferRequest create;
  create.set_size_bytes(8);
  EXPECT_EQ(core_->buffers().CreateBuffer(*tenant_, create).status().code(), StatusCode::kResourceExhausted);
}

// A token is valid for its tenant only, also after a restart, and reveals no counts of others' jobs.
TEST_F(JobTest, PageTokensSayNothingOfOthers) {
  for (int i = 0; i < 5; ++i) {
    SubmitJob(Request());
  }
  Status status;
  const auto page = [&](const TenantRef& tenant, const std::string& after) {
    v1::ListJobsRequest request;
    request.set_page_token(after);
    request.set_page_size(2);
    v1::ListJobsResponse response;
    status = testing::Finish(core_->job_reader().ListJobs(tenant, request, &response));
    return response;
  };
  const std::string token = page(tenant_, "").next_page_token();
  ASSERT_FALSE(token.empty());
  for (const char* number : {"1", "2", "3", "4", "5", "0", "18446744073709551615"}) {
    EXPECT_NE(token, number);
    page(tenant_, number);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << number;
    EXPECT_THAT(Message(status), HasSubstr("begin with the first page"));
  }
  page(*core_->tenants().FindTenant("bob"), token);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(page(tenant_, token).jobs_size(), 2);
  Restart();
  EXPECT_EQ(page(tenant_, token).jobs_size(), 2);
  EXPECT_TRUE(status.ok()) << status;
}

// A thousand large jobs are listed in as many pages as their bytes need.
TEST_F(JobTest, PagesAreCutByBytes) {
  v1::SubmitRequest request = Request();
  for (int i = 0; i < 30; ++i) {
    (*request.mutable_options()->mutable_labels())["label" + std::to_string(i)] = std::string(250, 'x');
  }
  std::set<std::string> submitted, listed;
  for (int i = 0; i < 500; ++i) {
    submitted.insert(SubmitJob(request));
  }
  for (const bool live : {false, true}) {
    listed.clear();
    v1::ListJobsRequest list;
    list.set_page_size(1'000);
    if (live) {
      list.add_states(v1::JOB_STATE_QUEUED);
      list.add_states(v1::JOB_STATE_RUNNING);
    }
    int pages = 0;
    do {
      v1::ListJobsResponse response;
      ASSERT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, list, &response)).ok());
      EXPECT_LE(response.ByteSizeLong(), 3u << 20);
      for (const v1::Job& job : response.jobs()) {
        listed.insert(job.id());
      }
      list.set_page_token(response.next_page_token());
      ++pages;
    } while (!list.page_token().empty());
    EXPECT_EQ(listed, submitted);
    EXPECT_GT(pages, 1);
  }
}

}  // namespace
}  // namespace hpvm::server
