// SPDX-License-Identifier: Apache-2.0
// Tests the daemon as clients see it: over a Unix socket, with the real executor where it is built.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "base/failpoint.h"
#include "base/thread_watch.h"
#include "hpvm/v1/service.grpc.pb.h"
#include "server/daemon.h"
#include "server/testing/service_fixture.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

using testing::HaveExecutor;

class ServiceTest : public testing::ServiceFixture {};

// Only the owner may use the socket.
TEST_F(ServiceTest, SocketIsPrivate) {
  struct stat info;
  ASSERT_EQ(stat((folder_ + "/s").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// Makes one call of any kind, by name: sends one message (empty unless given) and ends; returns the status and what
// came.
grpc::Status CallByName(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                        const std::string& request = "", std::string* response = nullptr) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  wait();
  const grpc::Slice message(request);  // A ByteBuffer without slices would be no message at all.
  call->WriteLast(grpc::ByteBuffer(&message, 1), grpc::WriteOptions(), nullptr);
  wait();
  grpc::ByteBuffer answer;
  for (call->Read(&answer, nullptr); wait(); call->Read(&answer, nullptr)) {
    grpc::Slice bytes;
    if (response != nullptr && answer.DumpToSingleSlice(&bytes).ok()) {
      response->assign(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
    }
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  return status;
}

// Every method of the descriptor is served: an empty request gets a defined response, and UNIMPLEMENTED only with a
// sentence.
TEST_F(ServiceTest, EveryMethodAnswers) {
  const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("hpvm.v1.Hpvm");
  ASSERT_NE(service, nullptr);
  EXPECT_EQ(service->method_count(), 33);
  const std::set<std::string> fine_when_empty = {"ServerInfo", "ListDevices", "ListCosts",  "ListJobs",
                                                 "ListGraphs", "ListModules", "ListBuffers"};
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& name = service->method(i)->name();
    if (name == "WatchJobs" || name == "WatchDevices") {
      continue;  // They answer until they are cancelled: see watch_calls_test.
    }
    const grpc::Status status = CallByName(channel_, "/hpvm.v1.Hpvm/" + name);
    SCOPED_TRACE(name + ": " + status.error_message());
    if (fine_when_empty.contains(name)) {
      EXPECT_TRUE(status.ok());
    } else {
      EXPECT_THAT(status.error_code(),
                  ::testing::AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::NOT_FOUND));
      EXPECT_EQ(status.error_message().back(), '.');
      EXPECT_GT(status.error_message().size(), 15u);
    }
  }
  EXPECT_EQ(CallByName(channel_, "/hpvm.v1.Hpvm/Nothing").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(CallByName(channel_, "/grpc.health.v1.Health/Check").ok());
}

// Returns grpc.health.v1's status of a name: 1 serving, 2 not; 0 for unknown names.
int HealthOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& name) {
  const std::string request = name.empty() ? "" : std::string("\x0a") + static_cast<char>(name.size()) + name;
  std::string response;
  const grpc::Status status = CallByName(channel, "/grpc.health.v1.Health/Check", request, &response);
  return status.ok() && response.size() == 2 && response[0] == 0x08 ? response[1] : 0;
}

// The daemon is live from the start and ready once it knows its devices; while draining it is live and not ready.
TEST_F(ServiceTest, Health) {
  EXPECT_EQ(HealthOf(channel_, ""), 1);
  EXPECT_EQ(HealthOf(channel_, "nobody"), 0);
  const auto becomes = [&](const std::string& name, int want) {
    for (int i = 0; i < 6'000 && HealthOf(channel_, name) != want; ++i) {  // Drivers are probed first.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return HealthOf(channel_, name) == want;
  };
  if (HaveExecutor()) {  // Without one no device is found.
    EXPECT_TRUE(becomes("hpvm.Ready", 1));
    EXPECT_TRUE(becomes("hpvm.v1.Hpvm", 1));
  }
  daemon_->core().Drain();
  EXPECT_TRUE(becomes("hpvm.Ready", 2));
  EXPECT_TRUE(becomes("hpvm.v1.Hpvm", 2));
  EXPECT_EQ(HealthOf(channel_, ""), 1);
}

// Bytes are written to a buffer in chunks and read back, including ranges; ranges beyond the end are refused.
TEST_F(ServiceTest, BuffersHoldBytes) {
  constexpr size_t kBytes = 3 * 1024 * 1024 + 17;
  std::string bytes(kBytes, 0);
  for (size_t i = 0; i < kBytes; ++i) {
    bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  v1::CreateBufferRequest create;
  create.set_size_bytes(kBytes);
  v1::CreateBufferResponse created;
  ASSERT_TRUE(stub_->CreateBuffer(Context().get(), create, &created).ok());
  const auto write = [&](uint64_t offset, const std::string& data, v1::WriteBufferResponse* response) {
    auto context = Context();
    auto writer = stub_->WriteBuffer(context.get(), response);
    v1::WriteBufferRequest message;
    message.mutable_header()->set_buffer_id(created.buffer().id());
    message.mutable_header()->set_offset(offset);
    for (size_t at = 0; at < data.size(); at += 1 << 20) {
      message.set_data(data.substr(at, 1 << 20));
      if (!writer->Write(message)) {
        break;
      }
      message.clear_header();
    }
    writer->WritesDone();
    return writer->Finish();
  };
  const auto read = [&](uint64_t offset, uint64_t size, grpc::Status* status) {
    v1::ReadBufferRequest request;
    request.set_buffer_id(created.buffer().id());
    request.set_offset(offset);
    request.set_size_bytes(size);
    auto context = Context();
    auto reader = stub_->ReadBuffer(context.get(), request);
    std::string got;
    v1::ReadBufferResponse message;
    while (reader->Read(&message)) {
      got += message.data();
    }
    *status = reader->Finish();
    return got;
  };
  v1::WriteBufferResponse written;
  ASSERT_TRUE(write(0, bytes, &written).ok());
  EXPECT_EQ(written.written_bytes(), kBytes);
  EXPECT_EQ(written.buffer().generation(), 2u);
  grpc::Status status;
  EXPECT_TRUE(read(0, 0, &status) == bytes);
  EXPECT_TRUE(read(1'000'003, 1'500'000, &status) == bytes.substr(1'000'003, 1'500'000));
  EXPECT_TRUE(status.ok());
  read(kBytes - 1, 2, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(write(kBytes - 1, "ab", &written).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  v1::DeleteBufferRequest remove;
  remove.set_buffer_id(created.buffer().id());
  v1::DeleteBufferResponse removed;
  EXPECT_EQ(stub_->DeleteBuffer(Context("bob").get(), remove, &removed).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(stub_->DeleteBuffer(Context().get(), remove, &removed).ok());
}

// A real kernel through Run; a second run reuses the plan.
TEST_F(ServiceTest, RunsMatmul) {
  SKIP_WITHOUT_EXECUTOR();
  v1::RunRequest request;
  request.set_handle(PrepareMatmul());
  BindMatmul(request.mutable_inputs());
  request.set_placements_max(10);
  for (int i = 0; i < 2; ++i) {
    v1::RunResponse response;
    const grpc::Status status = stub_->Run(Context().get(), request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.outputs_size(), 1);
    EXPECT_EQ(response.outputs(0).name(), "C");
    ExpectSixes(response.outputs(0).tensor());
    EXPECT_GT(response.timing().total_ns(), 0u);
    EXPECT_GE(response.placements_size(), 1);
  }
  // For wrong bindings the engine's sentence arrives, and the daemon continues.
  request.mutable_inputs()->DeleteSubrange(1, 1);
  v1::RunResponse response;
  EXPECT_EQ(stub_->Run(Context().get(), request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// For a wrong document every fault is in the message and in the details, which travel as google.rpc.Status.
TEST_F(ServiceTest, DetailsCarryDiagnostics) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string graph = R"({"hpvm": 1, "nodes": {"a": {"x": 1}, "b": {"y": 2}}})";
  ASSERT_TRUE(PutGraph(graph).ok());
  v1::PrepareGraphRequest request;
  request.set_graph_sha256(ToHex(HashOf(graph)));
  v1::PrepareGraphResponse response;
  const grpc::Status status = stub_->PrepareGraph(Context().get(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("/nodes/a"));
  v1::Status detailed;
  ASSERT_TRUE(detailed.ParseFromString(status.error_details()));
  v1::ErrorDetail detail;
  ASSERT_EQ(detailed.details_size(), 1);
  ASSERT_TRUE(detailed.details(0).UnpackTo(&detail));
  EXPECT_GE(detail.diagnostics().items_size(), 2);
}

// An error of any length arrives: shortened in the metadata of the failed call, complete in the response on request.
TEST_F(ServiceTest, LongErrorsArrive) {
  SKIP_WITHOUT_EXECUTOR();
  std::string graph = R"({"hpvm": 1, "nodes": {)";
  for (int i = 0; i < 90; ++i) {
    graph += (i == 0 ? "" : ",") + std::string("\"n\u00e9") + std::to_string(i) + R"(": {"unknown_word": 1})";
  }
  graph += "}}";
  ASSERT_TRUE(PutGraph(graph).ok());
  v1::PrepareGraphRequest request;
  request.set_graph_sha256(ToHex(HashOf(graph)));
  v1::PrepareGraphResponse response;
  grpc::Status status = stub_->PrepareGraph(Context().get(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("/nodes/n"));
  EXPECT_THAT(status.error_message(), HasSubstr("errors_in_body"));
  v1::Status detailed;
  ASSERT_TRUE(detailed.ParseFromString(status.error_details()));
  v1::ErrorDetail detail;
  ASSERT_TRUE(detailed.details(0).UnpackTo(&detail));
  EXPECT_GE(detail.diagnostics().items_size(), 1);
  const uint64_t all = static_cast<uint64_t>(detail.diagnostics().items_size()) + detail.diagnostics().omitted();
  EXPECT_GE(all, 90u);

  request.mutable_options()->set_errors_in_body(true);
  status = stub_->PrepareGraph(Context().get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.error().code(), static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  ASSERT_TRUE(response.error().details(0).UnpackTo(&detail));
  EXPECT_GE(detail.diagnostics().items_size(), 90);
  EXPECT_EQ(static_cast<uint64_t>(detail.diagnostics().items_size()) + detail.diagnostics().omitted(), all);
  EXPECT_TRUE(response.handle().empty());
  // A short error is always a failed call.
  request.set_graph_sha256(std::string(64, 'a'));
  EXPECT_EQ(stub_->PrepareGraph(Context().get(), request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

// Submits, watches to the end, and fetches the output.
TEST_F(ServiceTest, RunsJobs) {
  SKIP_WITHOUT_EXECUTOR();
  v1::FetchOutputRequest fetch;
  ASSERT_NO_FATAL_FAILURE(RunMatmulJob(&fetch));
  auto fetch_context = Context();
  auto reader = stub_->FetchOutput(fetch_context.get(), fetch);
  v1::FetchOutputResponse chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  v1::Tensor tensor;
  tensor.set_data(chunk.data());
  EXPECT_EQ(chunk.header().size_bytes(), 16u);
  ExpectSixes(tensor);
  EXPECT_TRUE(reader->Finish().ok());
}

// A slow disk delays calls that read outputs, and no others.
TEST_F(ServiceTest, SlowOutputsDelayNobody) {
  SKIP_WITHOUT_EXECUTOR();
  v1::FetchOutputRequest fetch;
  ASSERT_NO_FATAL_FAILURE(RunMatmulJob(&fetch));
  ASSERT_TRUE(SetFailpoints("service.download.send=sleep(1500)").ok());
  std::atomic<int> fetched = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {  // gRPC has fewer threads on a small machine.
    readers.emplace_back([&] {
      const auto context = Context();
      const auto reader = stub_->FetchOutput(context.get(), fetch);
      v1::FetchOutputResponse chunk;
      fetched += reader->Read(&chunk) && reader->Finish().ok() ? 1 : 0;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  v1::ServerInfoResponse info;
  EXPECT_TRUE(stub_->ServerInfo(Context().get(), v1::ServerInfoRequest(), &info).ok());
  EXPECT_EQ(fetched, 0);
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_EQ(fetched, 4);
  ASSERT_TRUE(SetFailpoints("").ok());
}

// The same for watches of jobs that ended before the daemon started, which only the store knows.
TEST_F(ServiceTest, SlowReadsForWatchersDelayNobody) {
  SKIP_WITHOUT_EXECUTOR();
  v1::FetchOutputRequest fetch;
  ASSERT_NO_FATAL_FAILURE(RunMatmulJob(&fetch));
  Stop();
  Start();
  ASSERT_TRUE(SetFailpoints("service.watch.send=sleep(1000)").ok());
  std::atomic<int> watched = 0;
  std::vector<std::thread> watchers;
  for (int i = 0; i < 4; ++i) {
    watchers.emplace_back([&] {
      v1::WatchJobRequest request;
      request.set_job_id(fetch.job_id());
      const auto context = Context();
      const auto events = stub_->WatchJob(context.get(), request);
      v1::JobEvent event;
      const bool has_ended = events->Read(&event) && event.job().state() == v1::JOB_STATE_SUCCEEDED;
      watched += has_ended && !events->Read(&event) && events->Finish().ok() ? 1 : 0;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  v1::ServerInfoResponse info;
  EXPECT_TRUE(stub_->ServerInfo(Context().get(), v1::ServerInfoRequest(), &info).ok());
  EXPECT_EQ(watched, 0);
  for (std::thread& watcher : watchers) {
    watcher.join();
  }
  EXPECT_EQ(watched, 4);
  ASSERT_TRUE(SetFailpoints("").ok());
  v1::WatchJobRequest request;
  request.set_job_id("job-none");
  const auto context = Context();
  EXPECT_EQ(stub_->WatchJob(context.get(), request)->Finish().error_code(), grpc::NOT_FOUND);
}

// The same for calls that look up a key or a finished job.
TEST_F(ServiceTest, SlowReadsForJobsDelayNobody) {
  SKIP_WITHOUT_EXECUTOR();
  v1::FetchOutputRequest fetch;
  ASSERT_NO_FATAL_FAILURE(RunMatmulJob(&fetch));
  v1::SubmitRequest submit;
  submit.set_handle(PrepareMatmul());
  BindMatmul(submit.mutable_inputs());
  submit.mutable_options()->set_idempotency_key("key");
  v1::RetryJobRequest retry;
  retry.set_job_id(fetch.job_id());
  v1::CancelJobRequest cancel;
  cancel.set_job_id(fetch.job_id());
  ASSERT_TRUE(SetFailpoints("service.call.begin=sleep(1000);core.cancel.read=sleep(1000)").ok());
  std::atomic<int> answered = 0;
  std::vector<std::thread> callers;
  const auto call = [&](auto begin) {
    callers.emplace_back([this, begin, &answered] { answered += begin(Context().get()).ok() ? 1 : 0; });
  };
  v1::SubmitResponse submitted[2], retried;
  v1::CancelJobResponse cancelled;
  call([&](grpc::ClientContext* context) { return stub_->Submit(context, submit, &submitted[0]); });
  call([&](grpc::ClientContext* context) { return stub_->Submit(context, submit, &submitted[1]); });
  call([&](grpc::ClientContext* context) { return stub_->RetryJob(context, retry, &retried); });
  call([&](grpc::ClientContext* context) { return stub_->CancelJob(context, cancel, &cancelled); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  v1::ServerInfoResponse info;
  EXPECT_TRUE(stub_->ServerInfo(Context().get(), v1::ServerInfoRequest(), &info).ok());
  EXPECT_EQ(answered, 0);
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(answered, 4);
  EXPECT_EQ(submitted[0].job().id(), submitted[1].job().id());
  EXPECT_EQ(FailpointHits()["service.call.begin"], 3u);
  EXPECT_EQ(FailpointHits()["core.cancel.read"], 1u);
  ASSERT_TRUE(SetFailpoints("").ok());
}

// Work on every shared thread is timed, including callbacks of long calls, and attributed to its tenant.
TEST_F(ServiceTest, SharedThreadsAreWatched) {
  SKIP_WITHOUT_EXECUTOR();
  std::mutex mutex;
  std::map<std::string, int> told;  // Counts of "thread item" and "thread item tenant".
  SetOnSlowItem(
      [&](const SlowItem& item) {
        std::lock_guard lock(mutex);
        const std::string name = std::string(item.thread) + " " + item.item;
        ++told[name];
        ++told[name + " " + item.tenant];
      },
      Duration{1});
  v1::FetchOutputRequest fetch;
  ASSERT_NO_FATAL_FAILURE(RunMatmulJob(&fetch));
  const auto context = Context();
  const auto output = stub_->FetchOutput(context.get(), fetch);
  v1::FetchOutputResponse chunk;
  while (output->Read(&chunk)) {
  }
  EXPECT_TRUE(output->Finish().ok());
  v1::CreateBufferRequest create;
  create.set_size_bytes(1 << 20);
  v1::CreateBufferResponse created;
  ASSERT_TRUE(stub_->CreateBuffer(Context().get(), create, &created).ok());
  v1::ReadBufferRequest read;
  read.set_buffer_id(created.buffer().id());
  const auto reading = Context();
  const auto reader = stub_->ReadBuffer(reading.get(), read);
  v1::ReadBufferResponse piece;
  while (reader->Read(&piece)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  const auto streaming = Context();
  const auto stream = stub_->Stream(streaming.get());
  v1::StreamRequest item;
  item.mutable_open()->set_handle(PrepareMatmul());
  ASSERT_TRUE(stream->Write(item));
  BindMatmul(item.mutable_item()->mutable_inputs());
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(stream->Write(item));
  }
  item.mutable_end();
  stream->Write(item);
  v1::StreamResponse result;
  while (stream->Read(&result)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  // None of the above waits for a fixed time; on a fast machine no timer fires while it runs.
  const auto is_told = [&](const std::string& name) {
    std::lock_guard lock(mutex);
    return told.contains(name);
  };
  for (const Time begin = RealClock().Now();
       !is_told("timer due") && RealClock().Now() - begin < std::chrono::seconds(60);) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  SetOnSlowItem(nullptr);
  for (const char* name : {"acceptor connections", "front connection", "front handshake", "hub event", "hub posted",
                           "timer due", "core lock /hpvm.v1.Hpvm/Submit ann", "commits room", "commits write ann",
                           "answers commit ann", "blobs step ann", "reads step ann", "audit group"}) {
    EXPECT_GE(told[name], 1) << name;
  }
  // More than the call's beginning.
  EXPECT_GE(told["grpc /hpvm.v1.Hpvm/PutGraph ann"], 3);
  EXPECT_GE(told["grpc /hpvm.v1.Hpvm/PutModule ann"], 3);
  EXPECT_GE(told["grpc /hpvm.v1.Hpvm/ReadBuffer ann"], 3);
  EXPECT_GE(told["grpc /hpvm.v1.Hpvm/WatchJob ann"], 3);
  EXPECT_GE(told["grpc /hpvm.v1.Hpvm/Stream ann"], 10);
}

// Results come in order, the end is explicit; a client that vanishes mid-stream leaves nothing behind.
TEST_F(ServiceTest, Streams) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string handle = PrepareMatmul();
  for (const bool vanish : {false, true}) {
    auto context = Context();
    auto stream = stub_->Stream(context.get());
    v1::StreamRequest request;
    request.mutable_open()->set_handle(handle);
    ASSERT_TRUE(stream->Write(request));
    v1::StreamResponse response;
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.opened().summary().name(), "matmul");
    BindMatmul(request.mutable_item()->mutable_inputs());
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(stream->Write(request));
    }
    if (vanish) {
      context->TryCancel();
      stream->Finish();
      break;
    }
    request.mutable_end();
    stream->Write(request);
    for (uint64_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(stream->Read(&response));
      EXPECT_EQ(response.result().index(), i);
      ExpectSixes(response.result().outputs(0).tensor());
    }
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.end().items(), 10u);
    EXPECT_FALSE(stream->Read(&response));
    EXPECT_TRUE(stream->Finish().ok());
  }
  // Items that have arrived may still begin one after the other: wait until none has for a while.
  int idle = 0;
  for (int i = 0; i < 1'000 && idle < 50; ++i) {
    idle = daemon_->core().operations() == 0 ? idle + 1 : 0;
    usleep(10'000);
  }
  EXPECT_EQ(idle, 50);
}

}  // namespace
}  // namespace hpvm::server
