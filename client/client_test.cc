// SPDX-License-Identifier: Apache-2.0
// Tests of the library against a fake server that loses responses, restarts and forgets.
#include "hpvm/client.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "client/status/status.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kDocument[] = R"({"hpvm": 1})";

grpc::Status Lost() { return {grpc::StatusCode::UNAVAILABLE, "Socket closed"}; }
grpc::Status Unknown() { return {grpc::StatusCode::NOT_FOUND, "There is no such thing."}; }

// FakeServer answers as the tests configure it, and counts and records requests.
class FakeServer final : public v1::Hpvm::Service {
 public:
  grpc::Status ServerInfo(grpc::ServerContext*, const v1::ServerInfoRequest*, v1::ServerInfoResponse* out) override {
    out->set_started_unix_ns(started);
    out->mutable_features()->Add(features.begin(), features.end());
    return grpc::Status::OK;
  }
  grpc::Status PutModule(grpc::ServerContext*, grpc::ServerReader<v1::PutModuleRequest>* in,
                         v1::PutModuleResponse*) override {
    v1::PutModuleRequest part;
    while (in->Read(&part)) {
    }
    ++modules_put;
    return grpc::Status::OK;
  }
  grpc::Status PutGraph(grpc::ServerContext*, grpc::ServerReader<v1::PutGraphRequest>* in,
                        v1::PutGraphResponse*) override {
    v1::PutGraphRequest part;
    while (in->Read(&part)) {
    }
    return grpc::Status::OK;
  }
  grpc::Status Run(grpc::ServerContext*, const v1::RunRequest*, v1::RunResponse*) override {
    ++runs;
    return Lost();
  }
  grpc::Status CreateBuffer(grpc::ServerContext*, const v1::CreateBufferRequest*,
                            v1::CreateBufferResponse* out) override {
    out->mutable_buffer()->set_id("buffer-" + std::to_string(++buffers_made));
    return grpc::Status::OK;
  }
  grpc::Status WriteBuffer(grpc::ServerContext*, grpc::ServerReader<v1::WriteBufferRequest>* in,
                           v1::WriteBufferResponse*) override {
    v1::WriteBufferRequest part;
    while (in->Read(&part)) {
      bytes_written += part.data().size();
    }
    return grpc::Status::OK;
  }
  grpc::Status DeleteBuffer(grpc::ServerContext*, const v1::DeleteBufferRequest*, v1::DeleteBufferResponse*) override {
    ++buffers_deleted;
    return grpc::Status::OK;
  }
  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request, v1::SubmitResponse* out) override {
    submitted.push_back(*request);
    out->mutable_job()->set_id("job-1");
    return on_submit ? on_submit(submitted.size(), out) : grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request, v1::GetJobResponse* out) override {
    out->mutable_job()->set_id(request->job_id());
    out->mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
    out->mutable_job()->set_nodes_run(7);
    return ++gets == 1 && loses_first_get ? Lost() : grpc::Status::OK;
  }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request, v1::ListJobsResponse* out) override {
    // Five elements in two pages, unordered.
    const bool is_first = request->page_token().empty();
    for (const uint64_t index : is_first ? std::vector<uint64_t>{4, 1, 3} : std::vector<uint64_t>{0, 2}) {
      v1::Job* job = out->add_jobs();
      job->set_id("job-" + std::to_string(index));
      job->set_array_index(index);
    }
    out->set_next_page_token(is_first ? "more" : "");
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::JobEvent>* out) override {
    return on_watch(++watches, request->job_id(), context, out);
  }
  grpc::Status FetchOutput(grpc::ServerContext*, const v1::FetchOutputRequest* request,
                           grpc::ServerWriter<v1::FetchOutputResponse>* out) override {
    offsets.push_back(request->offset());
    return on_fetch(offsets.size(), request->offset(), out);
  }

  std::function<grpc::Status(size_t, v1::SubmitResponse*)> on_submit;
  std::function<grpc::Status(int, const std::string&, grpc::ServerContext*, grpc::ServerWriter<v1::JobEvent>*)>
      on_watch;
  std::function<grpc::Status(size_t, uint64_t, grpc::ServerWriter<v1::FetchOutputResponse>*)> on_fetch;
  std::vector<v1::SubmitRequest> submitted;
  std::vector<std::string> features = {"job-arrays", "job-after"};
  std::vector<uint64_t> offsets;
  std::atomic<int64_t> started = 1;
  std::atomic<int> runs = 0, modules_put = 0, buffers_made = 0, buffers_deleted = 0, watches = 0, gets = 0;
  std::atomic<uint64_t> bytes_written = 0;
  bool loses_first_get = false;
};

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hpvm-client-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    endpoint_ = "unix:" + folder_ + "/s.sock";
    StartServer();
    Connect(seconds(20));
  }
  void TearDown() override {
    client_ = nullptr;
    StopServer();
    unlink((folder_ + "/s.sock").c_str());
    rmdir(folder_.c_str());
  }
  void StartServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&fake_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void StopServer() {
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
      server_ = nullptr;
    }
  }
  void Connect(Duration patience) {
    ClientOptions options;
    options.endpoint = endpoint_;
    options.patience = patience;
    options.on_unanswered = [this](const Status& status) { outages_.push_back(Message(status)); };
    StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
    ASSERT_TRUE(client.ok()) << Message(client.status());
    client_ = *std::move(client);
  }
  StatusOr<v1::SubmitResponse> Submit(const std::map<std::string, Tensor>& inputs = {},
                                      const SubmitOptions& options = {}) {
    return client_->Submit(kDocument, {.bytes = {{"k", {1, 2, 3}}}, .hashes = {}}, inputs, options);
  }

  std::string folder_, endpoint_;
  FakeServer fake_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  std::vector<std::string> outages_;
};

Tensor Large() {
  Tensor tensor{ElementType::kU8, {1 << 20}, {}};
  tensor.data.resize(1 << 20);
  return tensor;
}

void Send(grpc::ServerWriter<v1::JobEvent>* out, uint64_t sequence, int64_t time_ns, v1::JobState state) {
  v1::JobEvent event;
  event.set_sequence(sequence);
  event.set_time_unix_ns(time_ns);
  event.mutable_job()->set_id("job-1");
  event.mutable_job()->set_state(state);
  out->Write(event);
}

// After a lost response the identical request is sent again, with a key that the library made; the caller learns the
// key.
TEST_F(ClientTest, SubmitSendsTheSameAgain) {
  fake_.on_submit = [](size_t call, v1::SubmitResponse*) { return call < 3 ? Lost() : grpc::Status::OK; };
  const StatusOr<v1::SubmitResponse> response = Submit();
  ASSERT_TRUE(response.ok()) << Message(response.status());
  ASSERT_EQ(fake_.submitted.size(), 3u);
  const std::string key = fake_.submitted[0].options().idempotency_key();
  EXPECT_FALSE(key.empty());
  EXPECT_EQ(response->job().idempotency_key(), key);
  EXPECT_EQ(fake_.submitted[0].SerializeAsString(), fake_.submitted[2].SerializeAsString());
  EXPECT_EQ(outages_.size(), 1u);  // Reported once.
  EXPECT_EQ(fake_.modules_put, 1);
}

// Two submits are two jobs; a key given by the caller is kept.
TEST_F(ClientTest, KeysAreTheCallersOrNew) {
  SubmitOptions options;
  options.call.request.set_idempotency_key("mine");
  ASSERT_TRUE(Submit().ok() && Submit().ok() && Submit({}, options).ok());
  EXPECT_NE(fake_.submitted[0].options().idempotency_key(), fake_.submitted[1].options().idempotency_key());
  EXPECT_EQ(fake_.submitted[2].options().idempotency_key(), "mine");
}

// The options of a job are in the request.
TEST_F(ClientTest, SubmitOptionsAreSent) {
  SubmitOptions options;
  options.name = "n";
  options.attempts_max = 5;
  options.index_inputs = {"i"};
  options.array.emplace().set_last(9);
  options.after.emplace_back().set_job_id("job-0");
  Tensor scalar{ElementType::kI32, {}, {1, 0, 0, 0}};
  ASSERT_TRUE(Submit({{"x", scalar}}, options).ok());
  const v1::SubmitRequest& sent = fake_.submitted[0];
  EXPECT_EQ(sent.name(), "n");
  EXPECT_EQ(sent.retry().attempts_max(), 5u);
  EXPECT_EQ(sent.array().last(), 9u);
  ASSERT_EQ(sent.after_size(), 1);
  EXPECT_EQ(sent.after(0).job_id(), "job-0");
  ASSERT_EQ(sent.inputs_size(), 2);
  EXPECT_TRUE(sent.inputs(0).array_index());
  EXPECT_EQ(sent.inputs(1).tensor().data().size(), 4u);
}

// A server that does not know arrays would make a single job of one, so it gets none.
TEST_F(ClientTest, OldServersGetNoArrays) {
  fake_.features = {"job-after"};
  SubmitOptions options;
  options.array.emplace().set_last(9);
  EXPECT_EQ(Submit({}, options).status().code(), absl::StatusCode::kUnimplemented);
  options.array.reset();
  options.after.emplace_back().set_job_id("job-0");
  EXPECT_TRUE(Submit({}, options).ok());
  EXPECT_EQ(fake_.submitted.size(), 1u);
}

// A server that does not know needs of hosts would run the job anywhere.
TEST_F(ClientTest, NeedsOfHostsAreSentToServersThatKnowThem) {
  SubmitOptions options;
  options.host_needs.add_words("kind:gpu");
  options.host_needs.set_host("lab-a");
  options.host_needs.set_memory_bytes(4096);
  EXPECT_EQ(Submit({}, options).status().code(), absl::StatusCode::kUnimplemented);
  for (const char* feature : {"cluster", "host-needs"}) {
    fake_.features = {feature};
    EXPECT_TRUE(Submit({}, options).ok());
  }
  ASSERT_EQ(fake_.submitted.size(), 2u);
  const v1::HostNeeds& sent = fake_.submitted[0].host_needs();
  ASSERT_EQ(sent.words_size(), 1);
  EXPECT_EQ(sent.words(0), "kind:gpu");
  EXPECT_EQ(sent.host(), "lab-a");
  EXPECT_EQ(sent.memory_bytes(), 4096u);
}

// A server that restarted between the upload and the submit gets everything once more, with the same key.
TEST_F(ClientTest, UploadsAgainWhatARestartForgot) {
  fake_.on_submit = [this](size_t call, v1::SubmitResponse*) {
    if (call <= 2) {
      fake_.started = fake_.started + 1;
      return Unknown();
    }
    return grpc::Status(grpc::Status::OK);
  };
  ASSERT_TRUE(Submit({{"x", Large()}}).ok());
  ASSERT_EQ(fake_.submitted.size(), 3u);
  EXPECT_EQ(fake_.modules_put, 3);
  EXPECT_EQ(fake_.bytes_written, 3u << 20);
  EXPECT_EQ(fake_.submitted[2].inputs(0).buffer().buffer_id(), "buffer-3");
  EXPECT_EQ(fake_.submitted[0].options().idempotency_key(), fake_.submitted[2].options().idempotency_key());
  EXPECT_EQ(fake_.buffers_deleted, 3);
}

// A missing object on a server that did not restart stays missing: after one more try the caller gets the error.
TEST_F(ClientTest, GivesUpOnWhatDoesNotExist) {
  fake_.on_submit = [](size_t, v1::SubmitResponse*) { return Unknown(); };
  EXPECT_EQ(Submit().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(fake_.submitted.size(), 2u);
}

// Run may have had its effect, so it is never retried. A client without patience retries nothing.
TEST_F(ClientTest, SomeCallsAreSentOnce) {
  EXPECT_EQ(client_->Run(v1::RunRequest()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fake_.runs, 1);
  Connect(Duration(0));
  fake_.on_submit = [](size_t, v1::SubmitResponse*) { return Lost(); };
  EXPECT_EQ(Submit().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fake_.submitted.size(), 1u);
  EXPECT_TRUE(outages_.empty());
}

// The retry honours the delay that the server asks for.
TEST_F(ClientTest, WaitsAsLongAsTheServerAsks) {
  fake_.on_submit = [](size_t call, v1::SubmitResponse*) {
    v1::ErrorDetail detail;
    detail.set_retryable(true);
    detail.set_retry_after_ns(400'000'000);
    v1::Status status;
    status.set_code(14);
    status.add_details()->PackFrom(detail);
    return call == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "Draining.", status.SerializeAsString())
                     : grpc::Status::OK;
  };
  const Time start = RealClock().Now();
  ASSERT_TRUE(Submit().ok());
  EXPECT_GE(RealClock().Now() - start, milliseconds(400));
}

// A timeout covers all retries, and the error says why there was no response.
TEST_F(ClientTest, TimeoutsHoldAcrossTries) {
  fake_.on_submit = [](size_t, v1::SubmitResponse*) { return Lost(); };
  SubmitOptions options;
  options.call.timeout = milliseconds(300);
  const Time start = RealClock().Now();
  EXPECT_FALSE(Submit({}, options).ok());
  EXPECT_LT(RealClock().Now() - start, seconds(10));
  EXPECT_GE(fake_.submitted.size(), 2u);
}

// A stream that breaks or ends too early does not end the wait; nothing is reported twice; the final job is complete.
TEST_F(ClientTest, WaitSurvivesBrokenStreams) {
  fake_.loses_first_get = true;
  fake_.on_watch = [](int call, const std::string&, grpc::ServerContext*, grpc::ServerWriter<v1::JobEvent>* out) {
    Send(out, 1, 100, v1::JOB_STATE_QUEUED);
    if (call == 1) {
      return Lost();
    }
    Send(out, 2, 200, v1::JOB_STATE_RUNNING);
    if (call == 2) {
      return grpc::Status(grpc::Status::OK);  // Ends without a final state.
    }
    Send(out, 3, 300, v1::JOB_STATE_SUCCEEDED);
    return grpc::Status(grpc::Status::OK);
  };
  std::vector<uint64_t> told;
  WaitOptions options;
  options.on_event = [&](const v1::JobEvent& event) { told.push_back(event.sequence()); };
  const StatusOr<v1::Job> job = client_->WaitJob("job-1", options);
  ASSERT_TRUE(job.ok()) << Message(job.status());
  EXPECT_EQ(job->nodes_run(), 7u);  // From GetJob, whose first response was lost.
  EXPECT_EQ(fake_.watches, 3);
  EXPECT_THAT(told, ElementsAre(1, 2, 3));
}

// A restarted server numbers its events from 1 again: their times show that they are new.
TEST_F(ClientTest, EventsOfARestartedServerAreNew) {
  fake_.on_watch = [](int call, const std::string&, grpc::ServerContext*, grpc::ServerWriter<v1::JobEvent>* out) {
    if (call == 1) {
      Send(out, 5, 100, v1::JOB_STATE_RUNNING);
      return Lost();
    }
    Send(out, 1, 200, v1::JOB_STATE_ACCEPTED);
    Send(out, 2, 300, v1::JOB_STATE_FAILED);
    return grpc::Status(grpc::Status::OK);
  };
  std::vector<uint64_t> told;
  WaitOptions options;
  options.on_event = [&](const v1::JobEvent& event) { told.push_back(event.sequence()); };
  ASSERT_TRUE(client_->WaitJob("job-1", options).ok());
  EXPECT_THAT(told, ElementsAre(5, 1, 2));
}

// The whole server is away for a while, including its socket.
TEST_F(ClientTest, WaitSurvivesARestart) {
  fake_.on_watch = [](int call, const std::string&, grpc::ServerContext* context,
                      grpc::ServerWriter<v1::JobEvent>* out) {
    Send(out, 1, call, v1::JOB_STATE_RUNNING);
    while (call == 1 && !context->IsCancelled()) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    Send(out, 2, call, v1::JOB_STATE_SUCCEEDED);
    return grpc::Status::OK;
  };
  std::thread restarter([&] {
    while (fake_.watches == 0) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    StopServer();
    std::this_thread::sleep_for(milliseconds(300));
    StartServer();
  });
  const StatusOr<v1::Job> job = client_->WaitJob("job-1");
  restarter.join();
  ASSERT_TRUE(job.ok()) << Message(job.status());
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(outages_.size(), 1u);
}

// A missing job ends the wait at once; a timeout says that the job continues.
TEST_F(ClientTest, WaitsEnd) {
  fake_.on_watch = [](int call, const std::string&, grpc::ServerContext* context, grpc::ServerWriter<v1::JobEvent>*) {
    while (call > 1 && !context->IsCancelled()) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    return Unknown();
  };
  EXPECT_EQ(client_->WaitJob("job-1").status().code(), absl::StatusCode::kNotFound);
  WaitOptions options;
  options.call.timeout = milliseconds(100);
  const Status late = client_->WaitJob("job-1", options).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(late), HasSubstr("the job goes on"));
}

// All elements of an array are listed by index, over two pages, and each is waited for.
TEST_F(ClientTest, WaitsForArrays) {
  fake_.on_watch = [](int, const std::string&, grpc::ServerContext*, grpc::ServerWriter<v1::JobEvent>* out) {
    Send(out, 1, 1, v1::JOB_STATE_SUCCEEDED);
    return grpc::Status::OK;
  };
  const StatusOr<std::vector<std::string>> ids = client_->ArrayJobs("array-1");
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ElementsAre("job-0", "job-1", "job-2", "job-3", "job-4"));
  std::vector<std::string> ended;
  WaitOptions options;
  options.on_ended = [&](const v1::Job& job) { ended.push_back(job.id()); };
  ASSERT_TRUE(client_->WaitAll(*ids, options).ok());
  EXPECT_EQ(ended, *ids);
}

// An output whose stream breaks is resumed at that point; an output that changes meanwhile is not combined.
TEST_F(ClientTest, FetchGoesOnWhereItBroke) {
  std::string whole(1000, ' ');
  for (size_t i = 0; i < whole.size(); ++i) {
    whole[i] = static_cast<char>(i * 7);
  }
  bool changes = false;
  fake_.on_fetch = [&](size_t call, uint64_t offset, grpc::ServerWriter<v1::FetchOutputResponse>* out) {
    v1::FetchOutputResponse part;
    part.mutable_header()->set_type(v1::ELEMENT_TYPE_U8);
    part.mutable_header()->add_shape(changes && call > 1 ? 999 : 1000);
    part.set_data(whole.substr(offset, 300));
    out->Write(part);
    return offset + 300 >= whole.size() ? grpc::Status::OK : Lost();
  };
  const StatusOr<Tensor> tensor = client_->FetchOutput("job-1", "y");
  ASSERT_TRUE(tensor.ok()) << Message(tensor.status());
  EXPECT_EQ(std::string(tensor->data.begin(), tensor->data.end()), whole);
  EXPECT_THAT(fake_.offsets, ElementsAre(0, 300, 600, 900));
  fake_.offsets.clear();
  changes = true;
  EXPECT_EQ(client_->FetchOutput("job-1", "y").status().code(), absl::StatusCode::kDataLoss);
}

// A server that sends more or fewer bytes than it announced is not trusted.
TEST_F(ClientTest, FetchChecksSizes) {
  for (const auto& [announced, code] :
       {std::pair<uint64_t, absl::StatusCode>{4, absl::StatusCode::kInternal}, {16, absl::StatusCode::kDataLoss}}) {
    fake_.on_fetch = [n = announced](size_t, uint64_t, grpc::ServerWriter<v1::FetchOutputResponse>* out) {
      v1::FetchOutputResponse part;
      part.mutable_header()->set_type(v1::ELEMENT_TYPE_U8);
      part.mutable_header()->add_shape(n);
      part.set_data("12345678");
      out->Write(part);
      return grpc::Status::OK;
    };
    EXPECT_EQ(client_->FetchOutput("job-1", "y").status().code(), code) << announced;
  }
}

}  // namespace
}  // namespace hpvm
