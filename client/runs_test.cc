// SPDX-License-Identifier: Apache-2.0
// Tests of runs that are cancelled, that nobody waits for, whose data stays in buffers, or whose server restarted;
// against a fake server.
#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/client.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Held blocks a run until it is cancelled.
class Held final : public grpc::ServerUnaryReactor {
 public:
  explicit Held(std::atomic<int>& count) : count_(count) { ++count_; }
  void OnCancel() override { Finish({grpc::StatusCode::CANCELLED, "The run was cancelled."}); }
  void OnDone() override {
    --count_;
    delete this;
  }

 private:
  std::atomic<int>& count_;
};

// Returns "y" with each byte of "x" doubled, inline; for buffers it reports where it was asked to put each. A handle
// that begins with "hold" blocks its runs.
class FakeServer final : public v1::Hpvm::WithCallbackMethod_Run<v1::Hpvm::Service> {
 public:
  grpc::Status ServerInfo(grpc::ServerContext*, const v1::ServerInfoRequest*, v1::ServerInfoResponse* out) override {
    out->set_started_unix_ns(started);
    return grpc::Status::OK;
  }
  grpc::Status PutModule(grpc::ServerContext*, grpc::ServerReader<v1::PutModuleRequest>* in,
                         v1::PutModuleResponse*) override {
    for (v1::PutModuleRequest part; in->Read(&part);) {
    }
    ++modules_put;
    return grpc::Status::OK;
  }
  grpc::Status PutGraph(grpc::ServerContext*, grpc::ServerReader<v1::PutGraphRequest>* in,
                        v1::PutGraphResponse*) override {
    for (v1::PutGraphRequest part; in->Read(&part);) {
    }
    return grpc::Status::OK;
  }
  grpc::Status PrepareGraph(grpc::ServerContext*, const v1::PrepareGraphRequest*,
                            v1::PrepareGraphResponse* out) override {
    if (!prepare_status.ok()) {
      return prepare_status;
    }
    const std::lock_guard lock(mutex);
    out->set_handle(prefix + std::to_string(++prepared));
    handles.insert(out->handle());
    return grpc::Status::OK;
  }
  grpc::Status ReleaseGraph(grpc::ServerContext*, const v1::ReleaseGraphRequest* request,
                            v1::ReleaseGraphResponse*) override {
    const std::lock_guard lock(mutex);
    return handles.erase(request->handle()) != 0 ? grpc::Status::OK : Unknown();
  }
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const v1::RunRequest* request,
                                v1::RunResponse* out) override {
    if (request->handle().starts_with("hold")) {
      return new Held(held);
    }
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(Answer(*request, out));
    return reactor;
  }
  grpc::Status RunMany(grpc::ServerContext*, const v1::RunManyRequest* request,
                       grpc::ServerWriter<v1::RunManyResponse>* out) override {
    v1::RunManyResponse part;
    for (int i = 0; i < request->items_size(); ++i) {
      v1::RunRequest one;
      one.set_handle(request->handle());
      *one.mutable_inputs() = request->items(i).inputs();
      v1::RunManyResponse::Result& result = *part.add_results();
      result.set_index(static_cast<uint32_t>(i));
      if (const grpc::Status status = Answer(one, result.mutable_run()); !status.ok()) {
        return status;
      }
    }
    out->Write(part);
    return grpc::Status::OK;
  }
  grpc::Status CreateBuffer(grpc::ServerContext*, const v1::CreateBufferRequest* request,
                            v1::CreateBufferResponse* out) override {
    const std::lock_guard lock(mutex);
    out->mutable_buffer()->set_id("buffer-" + std::to_string(++buffers_made));
    out->mutable_buffer()->set_type(request->type());
    *out->mutable_buffer()->mutable_shape() = request->shape();
    out->mutable_buffer()->set_size_bytes(request->shape(0));
    buffers[out->buffer().id()].resize(request->shape(0));
    return grpc::Status::OK;
  }
  grpc::Status WriteBuffer(grpc::ServerContext*, grpc::ServerReader<v1::WriteBufferRequest>* in,
                           v1::WriteBufferResponse*) override {
    v1::WriteBufferRequest part;
    std::string id;
    uint64_t at = 0;
    while (in->Read(&part)) {
      const std::lock_guard lock(mutex);
      id = part.has_header() ? part.header().buffer_id() : id;
      at = part.has_header() ? part.header().offset() : at;
      buffers.at(id).replace(at, part.data().size(), part.data());
      at += part.data().size();
    }
    return grpc::Status::OK;
  }
  grpc::Status ReadBuffer(grpc::ServerContext*, const v1::ReadBufferRequest* request,
                          grpc::ServerWriter<v1::ReadBufferResponse>* out) override {
    v1::ReadBufferResponse part;
    {
      const std::lock_guard lock(mutex);
      part.set_data(buffers.at(request->buffer_id()).substr(request->offset(), request->size_bytes()));
    }
    out->Write(part);
    return grpc::Status::OK;
  }
  grpc::Status DeleteBuffer(grpc::ServerContext*, const v1::DeleteBufferRequest* request,
                            v1::DeleteBufferResponse*) override {
    const std::lock_guard lock(mutex);
    return buffers.erase(request->buffer_id()) != 0 ? grpc::Status::OK : Unknown();
  }

  static grpc::Status Unknown() { return {grpc::StatusCode::NOT_FOUND, "There is no such thing."}; }

  // Simulates another process, which knows nothing.
  void Restart() {
    const std::lock_guard lock(mutex);
    started += 1'000;
    handles.clear();
    buffers.clear();
  }

  std::mutex mutex;
  std::set<std::string> handles;
  std::map<std::string, std::string> buffers;
  std::string prefix = "graph-";
  grpc::Status prepare_status;
  std::atomic<int64_t> started = 1;
  std::atomic<int> prepared = 0, modules_put = 0, runs = 0, held = 0, buffers_made = 0;

 private:
  grpc::Status Answer(const v1::RunRequest& request, v1::RunResponse* out) {
    const std::lock_guard lock(mutex);
    ++runs;
    if (!handles.contains(request.handle())) {
      return Unknown();
    }
    std::string bytes;
    for (const v1::InputBinding& input : request.inputs()) {
      bytes += input.has_tensor() ? input.tensor().data() : buffers.at(input.buffer().buffer_id());
    }
    for (char& byte : bytes) {
      byte = static_cast<char>(2 * byte);
    }
    v1::OutputValue& y = *out->add_outputs();
    y.set_name("y");
    if (request.outputs_size() == 1) {
      buffers.at(request.outputs(0).buffer_id()) = bytes;
      y.mutable_buffer()->set_buffer_id(request.outputs(0).buffer_id());
      y.mutable_buffer()->set_type(v1::ELEMENT_TYPE_U8);
      y.mutable_buffer()->add_shape(bytes.size());
      return grpc::Status::OK;
    }
    if (bytes.size() > 1'000) {  // As a server does for tensors too large for a message.
      const std::string id = "made-" + std::to_string(++buffers_made);
      buffers[id] = bytes;
      y.mutable_buffer()->set_buffer_id(id);
      y.mutable_buffer()->set_type(v1::ELEMENT_TYPE_U8);
      y.mutable_buffer()->add_shape(bytes.size());
      return grpc::Status::OK;
    }
    y.mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);
    y.mutable_tensor()->add_shape(bytes.size());
    y.mutable_tensor()->set_data(bytes);
    return grpc::Status::OK;
  }
};

class RunsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { grpc_init(); }

  RunsTest() {
    char name[] = "/tmp/hpvm-runs-XXXXXX";
    folder_ = mkdtemp(name);
    endpoint_ = "unix:" + folder_ + "/s.sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&fake_);
    server_ = builder.BuildAndStart();
    Connect(true);
  }
  ~RunsTest() override {
    client_ = nullptr;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    std::filesystem::remove_all(folder_);
  }
  void Connect(bool prepare_again) {
    client_ = *Client::Connect({.endpoint = endpoint_,
                                .local_memory = false,
                                .local_ring = false,
                                .prepare_again = prepare_again,
                                .on_prepared_again = [this](const std::string& handle) { again_.push_back(handle); }});
  }
  std::string Prepare() { return client_->Prepare("{}", {.bytes = {{"m", {1}}}, .hashes = {}})->handle; }
  static std::map<std::string, Tensor> Inputs(std::vector<uint8_t> bytes = {1, 2, 3}) {
    return {{"x", {ElementType::kU8, {bytes.size()}, bytes}}};
  }

  std::string folder_, endpoint_;
  FakeServer fake_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  std::vector<std::string> again_;
};

// A cancellation from any thread ends the call soon, with all retries, and the server learns of it.
TEST_F(RunsTest, CancellationEndsACall) {
  fake_.prefix = "hold-";
  const std::string handle = Prepare();
  RunOptions options;
  Cancellation cancellation;
  options.call.cancel = cancellation;
  Time triggered{0};
  std::thread other([&] {
    while (fake_.held == 0) {
      std::this_thread::yield();
    }
    triggered = RealClock().Now();
    cancellation.Cancel();
  });
  const StatusOr<RunOutcome> outcome = client_->Run(handle, Inputs(), options);
  const Time ended = RealClock().Now();
  other.join();
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Message(outcome.status()), HasSubstr("caller cancelled"));
  EXPECT_LT(ended - triggered, milliseconds(100));
  for (int i = 0; i < 1'000 && fake_.held != 0; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(fake_.held, 0);
  // It also ends calls that begin later.
  EXPECT_EQ(client_->ServerInfo(options.call).status().code(), absl::StatusCode::kCancelled);
}

// A call that waits between two retries is cut short, too.
TEST_F(RunsTest, CancellationEndsWaitingForAServer) {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  CallOptions call;
  Cancellation cancellation;
  call.cancel = cancellation;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(300));
    cancellation.Cancel();
  });
  const Time start = RealClock().Now();
  EXPECT_EQ(client_->ServerInfo(call).status().code(), absl::StatusCode::kCancelled);
  EXPECT_LT(RealClock().Now() - start, milliseconds(1'000));
  other.join();
}

TEST_F(RunsTest, AsyncRunsGiveWhatRunsGive) {
  const std::string handle = Prepare();
  std::vector<Pending<RunOutcome>> pending;
  std::atomic<int> called = 0;
  for (uint8_t i = 0; i < 100; ++i) {
    Client::OnOutcome on_outcome = nullptr;
    if (i % 2 == 1) {
      on_outcome = [&called](const StatusOr<RunOutcome>& outcome) { called += outcome.ok() ? 1 : 1'000; };
    }
    pending.push_back(client_->RunAsync(handle, Inputs({i}), {}, on_outcome));
  }
  for (uint8_t i = 0; i < 100; ++i) {
    const StatusOr<RunOutcome> outcome = pending[i].Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->outputs.at("y").data, std::vector<uint8_t>{static_cast<uint8_t>(2 * i)});
    EXPECT_EQ(pending[i].Wait().status().code(), absl::StatusCode::kFailedPrecondition);  // The result is given once.
  }
  EXPECT_EQ(called, 50);
  // Outputs and inputs that are too large for a message.
  const std::vector<uint8_t> large(1 << 20, 3);
  const StatusOr<RunOutcome> outcome = client_->RunAsync(handle, Inputs(large)).Wait();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->outputs.at("y").data, std::vector<uint8_t>(1 << 20, 6));
  EXPECT_TRUE(fake_.buffers.empty());
  // A run that fails before anything is sent.
  RunOptions late;
  late.call.timeout = Duration(0);
  EXPECT_EQ(client_->RunAsync(handle, Inputs(large), late).Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
}

// Dropped, cancelled or detached runs leak nothing (the sanitizers check), leave nothing at the server, and every
// callback is called.
TEST_F(RunsTest, TenThousandAsyncRunsMayBeDropped) {
  fake_.prefix = "hold-";
  const std::string handle = Prepare();
  std::atomic<int> called = 0, cancelled = 0;
  {
    std::vector<Pending<RunOutcome>> pending;
    for (int i = 0; i < 10'000; ++i) {
      pending.push_back(client_->RunAsync(handle, Inputs(), {}, [&](const StatusOr<RunOutcome>& outcome) {
        ++called;
        cancelled += absl::IsCancelled(outcome.status()) ? 1 : 0;
      }));
    }
    EXPECT_FALSE(pending.back().IsDone());
    pending.back().Cancel();
    EXPECT_TRUE(pending.back().WaitFor(seconds(20)));
    EXPECT_EQ(pending.back().Wait().status().code(), absl::StatusCode::kCancelled);
    // Detached runs are cancelled when the client is destroyed.
    for (size_t i = 0; i < 100; ++i) {
      pending[i].Detach();
    }
  }
  client_ = nullptr;
  EXPECT_EQ(called, 10'000);
  EXPECT_EQ(cancelled, 10'000);
  for (int i = 0; i < 2'000 && fake_.held != 0; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(fake_.held, 0);
}

TEST_F(RunsTest, TheCallersCancellationEndsAsyncRuns) {
  fake_.prefix = "hold-";
  const std::string handle = Prepare();
  RunOptions options;
  Cancellation cancellation;
  options.call.cancel = cancellation;
  Pending<RunOutcome> one = client_->RunAsync(handle, Inputs(), options);
  Pending<RunOutcome> other = client_->RunAsync(handle, Inputs(), options);
  cancellation.Cancel();
  EXPECT_EQ(one.Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(other.Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client_->RunAsync(handle, Inputs(), options).Wait().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(RunsTest, BuffersAreInputsAndOutputsAndGoWithTheirOwners) {
  const std::string handle = Prepare();
  {
    const uint64_t shape[] = {4};
    StatusOr<Buffer> x = client_->MakeBuffer(ElementType::kU8, shape);
    StatusOr<Buffer> y = client_->MakeBuffer(ElementType::kU8, shape);
    ASSERT_TRUE(x.ok() && y.ok());
    const uint8_t bytes[] = {1, 2, 3, 4};
    ASSERT_EQ(x->Write(bytes), absl::OkStatus());
    RunOptions options;
    options.input_buffers["x"] = x->View();
    options.output_buffers["y"] = y->id();
    const StatusOr<RunOutcome> outcome = client_->Run(handle, {}, options);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->outputs.empty());
    EXPECT_EQ(outcome->buffers.at("y").buffer_id, y->id());
    EXPECT_THAT(outcome->buffers.at("y").shape, ElementsAre(4));
    EXPECT_THAT(y->ReadTensor()->data, ElementsAre(2, 4, 6, 8));
    ASSERT_TRUE(client_->RunAsync(handle, {}, options).Wait().ok());
    EXPECT_EQ(fake_.buffers.size(), 2u);  // The caller's buffers outlive the run.
    Buffer moved = *std::move(x);
    EXPECT_EQ(x->id(), "");
    EXPECT_EQ(x->Write(bytes).code(), absl::StatusCode::kFailedPrecondition);
    moved = *std::move(y);
    EXPECT_EQ(fake_.buffers.size(), 1u);
    EXPECT_EQ(moved.Delete(), absl::OkStatus());
    EXPECT_EQ(moved.Delete().code(), absl::StatusCode::kFailedPrecondition);
    StatusOr<Buffer> given_up = client_->MakeBuffer(ElementType::kU8, shape);
    given_up->Release();
  }
  EXPECT_EQ(fake_.buffers.size(), 1u);
  // RunMany's buffers are deleted with the items.
  RunItem item;
  item.input_buffers["x"] = {.buffer_id = fake_.buffers.begin()->first};
  const auto on_result = [](size_t, const StatusOr<RunOutcome>& outcome) {
    EXPECT_EQ(outcome->outputs.at("y").data.size(), 4u);
    return true;
  };
  EXPECT_EQ(client_->RunMany(handle, {&item, 1}, on_result), absl::OkStatus());
  RunOptions options;
  options.output_buffers["y"] = "buffer-1";
  EXPECT_EQ(client_->RunMany(handle, {&item, 1}, on_result, options).code(), absl::StatusCode::kInvalidArgument);
}

// The handle keeps naming the graph; the caller is told, and the new server's handle is the one released.
TEST_F(RunsTest, ARestartedServerIsPreparedAgain) {
  const std::string handle = Prepare();
  EXPECT_FALSE(client_->Run(handle, Inputs())->prepared_again);
  fake_.Restart();
  StatusOr<RunOutcome> outcome = client_->Run(handle, Inputs());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->prepared_again);
  EXPECT_THAT(outcome->outputs.at("y").data, ElementsAre(2, 4, 6));
  EXPECT_THAT(again_, ElementsAre(handle));
  EXPECT_EQ(fake_.modules_put, 2);
  EXPECT_FALSE(client_->Run(handle, Inputs())->prepared_again);
  fake_.Restart();
  outcome = client_->RunAsync(handle, Inputs()).Wait();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->prepared_again);
  fake_.Restart();
  const RunItem items[] = {{Inputs(), {}}, {Inputs(), {}}};
  int told = 0;
  const auto on_result = [&](size_t, const StatusOr<RunOutcome>& result) {
    told += result.ok() && result->prepared_again ? 1 : 0;
    return true;
  };
  EXPECT_EQ(client_->RunMany(handle, items, on_result), absl::OkStatus());
  EXPECT_EQ(told, 2);
  EXPECT_EQ(fake_.prepared, 4);
  EXPECT_EQ(client_->Release(handle), absl::OkStatus());
  EXPECT_TRUE(fake_.handles.empty());
}

// Many runs that notice the restart together prepare once.
TEST_F(RunsTest, ARestartedServerIsPreparedOnce) {
  const std::string handle = Prepare();
  fake_.Restart();
  std::vector<std::thread> threads;
  std::atomic<int> fine = 0;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] { fine += client_->Run(handle, Inputs()).ok() ? 1 : 0; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(fine, 16);
  EXPECT_EQ(fake_.prepared, 2);
}

TEST_F(RunsTest, NothingElseIsPreparedAgain) {
  std::string handle = Prepare();
  // Handles released by this client, and by another client of the same tenant.
  ASSERT_EQ(client_->Release(handle), absl::OkStatus());
  fake_.Restart();
  EXPECT_EQ(client_->Run(handle, Inputs()).status().code(), absl::StatusCode::kNotFound);
  handle = Prepare();
  fake_.handles.clear();
  EXPECT_EQ(client_->Run(handle, Inputs()).status().code(), absl::StatusCode::kNotFound);
  // A handle of another client.
  EXPECT_EQ(client_->Run("graph-x", Inputs()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(fake_.prepared, 2);
  // A graph that the new server refuses: the reason is reported.
  fake_.Restart();
  fake_.prepare_status = {grpc::StatusCode::FAILED_PRECONDITION, "No device can run it."};
  const Status refused = client_->Run(handle, Inputs()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("preparing the graph again"));
  fake_.prepare_status = grpc::Status::OK;
  // A client with prepare_again off.
  Connect(false);
  handle = Prepare();
  fake_.Restart();
  EXPECT_EQ(client_->Run(handle, Inputs()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(again_.empty());
}

}  // namespace
}  // namespace hpvm
