// SPDX-License-Identifier: Apache-2.0
// The daemon as clients see it: over a Unix socket, with the real executor where it is built.
#ifndef HPVMD_SERVER_TESTING_SERVICE_FIXTURE_H_
#define HPVMD_SERVER_TESTING_SERVICE_FIXTURE_H_

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hpvm/v1/service.grpc.pb.h"
#include "server/daemon.h"

namespace hpvm::server::testing {

inline bool HaveExecutor() {
  return access(HPVMD_BINARY_DIR "/hpvm-executor", X_OK) == 0 && access(HPVMD_BINARY_DIR "/hpvm-compiler", X_OK) == 0;
}

#define SKIP_WITHOUT_EXECUTOR()                                         \
  if (!HaveExecutor()) {                                                \
    GTEST_SKIP() << "hpvm-executor or hpvm-compiler is not built here"; \
  }

class ServiceFixture : public ::testing::Test {
 protected:
  ServiceFixture() {
    char folder[] = "/tmp/hpvmd-test-XXXXXX";
    folder_ = mkdtemp(folder);
    Config config;
    config.server_listen = "unix:" + folder_ + "/s";
    config.server_state_dir = folder_ + "/state";
    config.tenants_from_metadata = true;
    // Any executable file; without the real executor only calls that need none work.
    config.executor_path = HaveExecutor() ? HPVMD_BINARY_DIR "/hpvm-executor" : "/bin/false";
    config.log_level = "error";
    config_ = config;
    Start();
  }
  ~ServiceFixture() override {
    Stop();
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config_);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    channel_ = grpc::CreateChannel(config_.server_listen, grpc::InsecureChannelCredentials());
    stub_ = v1::Hpvm::NewStub(channel_);
  }
  void Stop() {
    daemon_->Stop([] { return true; });
    daemon_.reset();
  }

  static std::unique_ptr<grpc::ClientContext> Context(const std::string& tenant = "ann") {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("hpvm-tenant", tenant);
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return context;
  }

  template <typename Request, typename Response, typename Start>
  grpc::Status PutBlob(Start start, const std::string& text, const std::string& sha256) {
    Response response;
    auto context = Context();
    auto writer = start(context.get(), &response);
    Request message;
    message.mutable_header()->set_sha256(sha256);
    message.mutable_header()->set_size_bytes(text.size());
    for (size_t at = 0; at < text.size(); at += 1000) {
      message.set_data(text.substr(at, 1000));
      if (!writer->Write(message)) {
        break;
      }
      message.clear_header();
    }
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status PutGraph(const std::string& text) {
    return PutBlob<v1::PutGraphRequest, v1::PutGraphResponse>(
        [&](auto* context, auto* response) { return stub_->PutGraph(context, response); }, text, ToHex(HashOf(text)));
  }
  grpc::Status PutModule(const std::string& text) {
    return PutBlob<v1::PutModuleRequest, v1::PutModuleResponse>(
        [&](auto* context, auto* response) { return stub_->PutModule(context, response); }, text, ToHex(HashOf(text)));
  }

  // Submits a job of the prepared examples/matmul, watches it to the end, and fills the request for its output.
  void RunMatmulJob(v1::FetchOutputRequest* fetch) {
    v1::SubmitRequest request;
    request.set_handle(PrepareMatmul());
    BindMatmul(request.mutable_inputs());
    v1::SubmitResponse submitted;
    ASSERT_TRUE(stub_->Submit(Context().get(), request, &submitted).ok());
    v1::WatchJobRequest watch;
    watch.set_job_id(submitted.job().id());
    const auto context = Context();
    const auto events = stub_->WatchJob(context.get(), watch);
    v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
    for (v1::JobEvent event; events->Read(&event);) {
      last = event.has_job() ? event.job().state() : last;
    }
    EXPECT_TRUE(events->Finish().ok());
    ASSERT_EQ(last, v1::JOB_STATE_SUCCEEDED);
    fetch->set_job_id(submitted.job().id());
    fetch->set_name("C");
  }
  std::string PrepareMatmul() {
    const std::string graph = ReadFile(HPVMD_SOURCE_DIR "/examples/matmul/matmul.json");
    const std::string module = ReadFile(HPVMD_SOURCE_DIR "/examples/matmul/matmul.wasm");
    EXPECT_TRUE(PutGraph(graph).ok());
    EXPECT_TRUE(PutModule(module).ok());
    v1::PrepareGraphRequest request;
    request.set_graph_sha256(ToHex(HashOf(graph)));
    v1::ModuleBinding& binding = *request.add_modules();
    binding.set_name("matmul");
    binding.set_sha256(ToHex(HashOf(module)));
    v1::PrepareGraphResponse response;
    const grpc::Status status = stub_->PrepareGraph(Context().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.handle();
  }

  static std::string ReadFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  // Binds inputs A (2x3) and B (3x2) of ones and twos: every element of C is 6.
  template <typename Bindings>
  static void BindMatmul(Bindings* inputs) {
    const auto bind = [&](const char* name, uint64_t rows, uint64_t columns, float value) {
      v1::InputBinding& input = *inputs->Add();
      input.set_name(name);
      v1::Tensor& tensor = *input.mutable_tensor();
      tensor.set_type(v1::ELEMENT_TYPE_F32);
      tensor.add_shape(rows);
      tensor.add_shape(columns);
      const std::vector<float> values(rows * columns, value);
      tensor.set_data(values.data(), values.size() * sizeof(float));
    };
    bind("A", 2, 3, 1);
    bind("B", 3, 2, 2);
  }
  static void ExpectSixes(const v1::Tensor& tensor) {
    ASSERT_EQ(tensor.data().size(), 4 * sizeof(float));
    for (size_t i = 0; i < 4; ++i) {
      float value;
      tensor.data().copy(reinterpret_cast<char*>(&value), sizeof(value), i * sizeof(value));
      EXPECT_EQ(value, 6.0f);
    }
  }

  std::string folder_;
  Config config_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Hpvm::Stub> stub_;
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_SERVICE_FIXTURE_H_
