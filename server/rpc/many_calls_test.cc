// SPDX-License-Identifier: Apache-2.0
// Tests of RunMany and SubmitMany over the network, with the real executor.
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "base/failpoint.h"
#include "server/core/state/batch_limits.h"
#include "server/testing/service_fixture.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;
using testing::HaveExecutor;

class ManyCallsTest : public testing::ServiceFixture {
 protected:
  ManyCallsTest() {
    Stop();
    config_.devices_backends = "cpu";  // Other devices would be probed first.
    Start();
  }
  ~ManyCallsTest() override { EXPECT_TRUE(SetFailpoints("").ok()); }

  v1::RunManyRequest Batch(const std::string& handle, int count) {
    v1::RunManyRequest request;
    request.set_handle(handle);
    for (int i = 0; i < count; ++i) {
      BindMatmul(request.add_items()->mutable_inputs());
    }
    return request;
  }

  struct Ran {
    std::map<uint32_t, v1::RunResponse> results;
    int messages = 0;
    grpc::Status status;
  };
  Ran RunMany(const v1::RunManyRequest& request, grpc::ClientContext* context) {
    Ran ran;
    const auto reader = stub_->RunMany(context, request);
    for (v1::RunManyResponse part; reader->Read(&part); ++ran.messages) {
      for (const v1::RunManyResponse::Result& result : part.results()) {
        EXPECT_TRUE(ran.results.emplace(result.index(), result.run()).second) << result.index();
      }
    }
    ran.status = reader->Finish();
    return ran;
  }
  Ran RunMany(const v1::RunManyRequest& request) { return RunMany(request, Context().get()); }

  // Nothing is left of a call that has ended: no activity for a while.
  void ExpectIdle() {
    int idle = 0;
    for (int i = 0; i < 1'000 && idle < 20; ++i) {
      idle = daemon_->core().operations() == 0 ? idle + 1 : 0;
      usleep(10'000);
    }
    EXPECT_EQ(idle, 20);
  }
};

// More items than are in flight at a time: each result comes once, in fewer messages.
TEST_F(ManyCallsTest, RunsEach) {
  SKIP_WITHOUT_EXECUTOR();
  const Ran ran = RunMany(Batch(PrepareMatmul(), 200));
  EXPECT_TRUE(ran.status.ok()) << ran.status.error_message();
  ASSERT_EQ(ran.results.size(), 200u);
  EXPECT_EQ(ran.results.rbegin()->first, 199u);
  EXPECT_LE(ran.messages, 200);
  for (const auto& [index, run] : ran.results) {
    ASSERT_EQ(run.outputs_size(), 1);
    ExpectSixes(run.outputs(0).tensor());
    EXPECT_EQ(run.nodes_run(), 1u);
    EXPECT_FALSE(run.has_error());
  }
  ExpectIdle();
}

TEST_F(ManyCallsTest, CountsBeforeAnythingRuns) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string handle = PrepareMatmul();
  for (const int count : {0, kRunsPerCallMax + 1}) {
    const Ran ran = RunMany(Batch(handle, count));
    EXPECT_EQ(ran.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(ran.status.error_message(), HasSubstr("needs 1 to 1024"));
    EXPECT_EQ(ran.messages, 0);
  }
  v1::RunManyRequest large = Batch(handle, 1);
  large.mutable_items(0)->mutable_inputs(0)->mutable_tensor()->set_data(std::string(5 << 20, 'x'));
  EXPECT_EQ(RunMany(large).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(RunMany(Batch("graph-of-nobody", 2)).status.error_code(), grpc::StatusCode::NOT_FOUND);
  v1::RunManyRequest keyed = Batch(handle, 1);
  keyed.mutable_options()->set_idempotency_key("key");
  EXPECT_EQ(RunMany(keyed).status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  v1::RunManyRequest often = Batch(handle, 1);
  often.set_repeat(2'000'000);
  EXPECT_EQ(RunMany(often).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(RunMany(Batch(handle, kRunsPerCallMax)).results.size(), size_t{kRunsPerCallMax});
}

// A bad item fails alone.
TEST_F(ManyCallsTest, FailsByIndex) {
  SKIP_WITHOUT_EXECUTOR();
  v1::RunManyRequest request = Batch(PrepareMatmul(), 20);
  request.mutable_items(3)->clear_inputs();
  request.mutable_items(5)->mutable_inputs(0)->set_name("nobody");
  request.mutable_items(7)->mutable_inputs(0)->mutable_buffer()->set_buffer_id("buffer-of-nobody");
  (*request.mutable_items(19)->mutable_symbols())["nobody"] = 1;
  const Ran ran = RunMany(request);
  EXPECT_TRUE(ran.status.ok()) << ran.status.error_message();
  ASSERT_EQ(ran.results.size(), 20u);
  for (const auto& [index, run] : ran.results) {
    const bool is_bad = index == 3 || index == 5 || index == 7 || index == 19;
    EXPECT_EQ(run.has_error(), is_bad) << index << ": " << run.error().message();
    EXPECT_EQ(run.outputs_size(), is_bad ? 0 : 1);
  }
  EXPECT_EQ(ran.results.at(7).error().code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(ran.results.at(5).error().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
}

// Each item counts against the tenant's request rate, as a call of Run would.
TEST_F(ManyCallsTest, RunsOutOfRequests) {
  SKIP_WITHOUT_EXECUTOR();
  Stop();
  config_.quota_requests_per_second = 30;  // Twice as many in a burst.
  Start();
  const Ran ran = RunMany(Batch(PrepareMatmul(), 100));
  EXPECT_TRUE(ran.status.ok()) << ran.status.error_message();
  ASSERT_EQ(ran.results.size(), 100u);
  int refused = 0;
  for (const auto& [index, run] : ran.results) {
    refused += run.has_error() ? 1 : 0;
    if (run.has_error()) {
      EXPECT_EQ(run.error().code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
    }
  }
  EXPECT_GE(refused, 20);
  EXPECT_LE(refused, 50);
  EXPECT_TRUE(ran.results.at(99).has_error());
  EXPECT_FALSE(ran.results.at(0).has_error());
}

// A client that cancels, or whose deadline passes, ends the running items; the others never begin.
TEST_F(ManyCallsTest, EndsWithTheCall) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string handle = PrepareMatmul();
  ASSERT_TRUE(SetFailpoints("core.run.reply=sleep(5)").ok());
  for (const bool cancels : {true, false}) {
    const uint64_t before = FailpointHits()["core.run.reply"];
    const auto context = Context();
    if (!cancels) {
      context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
    }
    const auto reader = stub_->RunMany(context.get(), Batch(handle, 1'000));
    v1::RunManyResponse part;
    ASSERT_TRUE(reader->Read(&part));
    if (cancels) {
      context->TryCancel();
    }
    while (reader->Read(&part)) {
    }
    EXPECT_EQ(reader->Finish().error_code(),
              cancels ? grpc::StatusCode::CANCELLED : grpc::StatusCode::DEADLINE_EXCEEDED);
    ExpectIdle();
    EXPECT_LT(FailpointHits()["core.run.reply"] - before, 500u);
  }
}

// The work's own deadline counts from the receipt of the call.
TEST_F(ManyCallsTest, ItemsAreLateTogether) {
  SKIP_WITHOUT_EXECUTOR();
  v1::RunManyRequest request = Batch(PrepareMatmul(), 1'000);
  request.mutable_options()->set_deadline_ns(100'000'000);
  ASSERT_TRUE(SetFailpoints("core.run.reply=sleep(2)").ok());
  const Ran ran = RunMany(request);
  EXPECT_TRUE(ran.status.ok()) << ran.status.error_message();
  ASSERT_EQ(ran.results.size(), 1'000u);
  EXPECT_FALSE(ran.results.at(0).has_error());
  EXPECT_EQ(ran.results.at(999).error().code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
}

// Results that the client does not read do not delay other runs, and are there when it reads.
TEST_F(ManyCallsTest, WaitsForASlowReader) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string handle = PrepareMatmul();
  const auto slow_context = Context(), quick_context = Context("ben");
  const auto slow = stub_->RunMany(slow_context.get(), Batch(handle, 1'000));
  v1::RunManyResponse part;
  ASSERT_TRUE(slow->Read(&part));
  EXPECT_EQ(RunMany(Batch(handle, 50)).results.size(), 50u);
  std::set<uint32_t> seen;
  do {
    for (const v1::RunManyResponse::Result& result : part.results()) {
      seen.insert(result.index());
    }
  } while (slow->Read(&part));
  EXPECT_TRUE(slow->Finish().ok());
  EXPECT_EQ(seen.size(), 1'000u);
}

// A daemon that stops ends a call whose items run.
TEST_F(ManyCallsTest, StopsWithTheDaemon) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string handle = PrepareMatmul();
  ASSERT_TRUE(SetFailpoints("core.run.reply=sleep(3)").ok());
  Ran ran;
  std::atomic<bool> begun{false};
  std::thread client([&] {
    const auto context = Context();
    const auto reader = stub_->RunMany(context.get(), Batch(handle, 1'000));
    for (v1::RunManyResponse part; reader->Read(&part);) {
      begun = true;
    }
    ran.status = reader->Finish();
  });
  while (!begun) {
    usleep(1'000);
  }
  Stop();
  client.join();
  ASSERT_TRUE(SetFailpoints("").ok());
  Start();
}

// A client that reads the maximum rate of small results keeps its connection.
TEST_F(ManyCallsTest, StreamsManySmallResults) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string handle = PrepareMatmul();
  const auto context = Context();
  const auto stream = stub_->Stream(context.get());
  std::thread writer([&] {
    v1::StreamRequest request;
    request.mutable_open()->set_handle(handle);
    stream->Write(request);
    BindMatmul(request.mutable_item()->mutable_inputs());
    for (int i = 0; i < 2'000; ++i) {
      stream->Write(request);
    }
    request.mutable_end();
    stream->Write(request);
  });
  int results = 0;
  for (v1::StreamResponse response; stream->Read(&response);) {
    results += response.has_result() ? 1 : 0;
  }
  writer.join();
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(results, 2'000);
}

TEST_F(ManyCallsTest, SubmitsEach) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string handle = PrepareMatmul();
  v1::SubmitManyRequest request;
  for (int i = 0; i < 40; ++i) {
    v1::SubmitRequest& job = *request.add_jobs();
    job.set_handle(handle);
    BindMatmul(job.mutable_inputs());
    job.mutable_options()->set_idempotency_key("key-" + std::to_string(i));
  }
  request.mutable_jobs(7)->set_handle("graph-of-nobody");
  v1::SubmitManyResponse first, second;
  const grpc::Status status = stub_->SubmitMany(Context().get(), request, &first);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(first.results_size(), 40);
  ASSERT_TRUE(stub_->SubmitMany(Context().get(), request, &second).ok());
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(first.results(i).has_error(), i == 7);
    EXPECT_EQ(second.results(i).has_error(), i == 7);
    EXPECT_EQ(second.results(i).existed(), i != 7);
    EXPECT_EQ(second.results(i).job().id(), first.results(i).job().id());
  }
  v1::GetJobRequest get;
  get.set_job_id(first.results(39).job().id());
  v1::GetJobResponse got;
  for (int i = 0; i < 1'000 && got.job().state() != v1::JOB_STATE_SUCCEEDED; ++i) {
    ASSERT_TRUE(stub_->GetJob(Context().get(), get, &got).ok());
    usleep(10'000);
  }
  EXPECT_EQ(got.job().state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ManyCallsTest, RefusesWrongSubmits) {
  v1::SubmitManyRequest request;
  v1::SubmitManyResponse response;
  EXPECT_EQ(stub_->SubmitMany(Context().get(), request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.add_jobs();
  request.mutable_options()->set_idempotency_key("key");
  EXPECT_EQ(stub_->SubmitMany(Context().get(), request, &response).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  request.clear_options();
  ASSERT_TRUE(stub_->SubmitMany(Context().get(), request, &response).ok());
  EXPECT_EQ(response.results(0).error().code(), static_cast<int>(absl::StatusCode::kNotFound));
  request.mutable_jobs(0)->add_inputs()->mutable_tensor()->set_data(std::string(5 << 20, 'x'));
  EXPECT_EQ(stub_->SubmitMany(Context().get(), request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace hpvm::server
