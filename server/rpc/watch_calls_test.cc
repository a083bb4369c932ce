// SPDX-License-Identifier: Apache-2.0
// Tests of WatchJobs and WatchDevices of a real daemon, by the C++ library and by plain gRPC.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "hpvm/client.h"
#include "hpvm/v1/service.grpc.pb.h"
#include "server/daemon.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

bool HaveExecutor() {
  return access(HPVMD_BINARY_DIR "/hpvm-executor", X_OK) == 0 && access(HPVMD_BINARY_DIR "/hpvm-compiler", X_OK) == 0;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class WatchCallsTest : public ::testing::Test {
 protected:
  WatchCallsTest() {
    char folder[] = "/tmp/hpvmd-test-XXXXXX";
    folder_ = mkdtemp(folder);
    config_.server_listen = "unix:" + folder_ + "/s";
    config_.server_state_dir = folder_ + "/state";
    config_.tenants_from_metadata = true;
    config_.executor_path = HPVMD_BINARY_DIR "/hpvm-executor";
    config_.devices_backends = "cpu";
    config_.log_level = "error";
  }
  ~WatchCallsTest() override {
    clients_.clear();
    Stop();
    std::filesystem::remove_all(folder_);
  }
  void SetUp() override {
    if (!HaveExecutor()) {
      GTEST_SKIP() << "hpvm-executor or hpvm-compiler is not built here";
    }
  }
  void Start() {
    StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }
  void Stop() {
    if (daemon_ != nullptr) {
      daemon_->Stop([] { return true; });
      daemon_.reset();
    }
  }
  Client& ClientOf(const std::string& tenant) {
    std::lock_guard lock(mutex_);
    std::unique_ptr<Client>& client = clients_[tenant];
    if (client == nullptr) {
      ClientOptions options;
      options.endpoint = config_.server_listen;
      options.tenant = tenant;
      client = *Client::Connect(options);
    }
    return *client;
  }
  // Submits a small product of matrices; `label_bytes` makes the job large.
  std::string Submit(const std::string& tenant, size_t label_bytes = 0) {
    const std::string document = ReadFile(HPVMD_SOURCE_DIR "/examples/matmul/matmul.json");
    const std::string module = ReadFile(HPVMD_SOURCE_DIR "/examples/matmul/matmul.wasm");
    Modules modules;
    modules.bytes["matmul"].assign(module.begin(), module.end());
    const auto matrix = [](uint64_t rows, uint64_t columns) {
      return Tensor{
          .type = ElementType::kF32, .shape = {rows, columns}, .data = std::vector<uint8_t>(rows * columns * 4)};
    };
    SubmitOptions options;
    for (size_t i = 0; i * 250 < label_bytes; ++i) {
      (*options.call.request.mutable_labels())["l" + std::to_string(i)] = std::string(250, 'x');
    }
    const auto submitted =
        ClientOf(tenant).Submit(document, modules, {{"A", matrix(2, 3)}, {"B", matrix(3, 2)}}, options);
    EXPECT_TRUE(submitted.ok()) << submitted.status();
    return submitted.ok() ? submitted->job().id() : "";
  }
  static std::unique_ptr<grpc::ClientContext> Context(const std::string& tenant) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("hpvm-tenant", tenant);
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return context;
  }
  // A call that has ended keeps its status.
  static void Cancel(bool is_open, grpc::ClientContext& context) {
    if (is_open) {
      context.TryCancel();
    }
  }
  std::unique_ptr<v1::Hpvm::Stub> Stub() {
    grpc::ChannelArguments arguments;  // gRPC reads no more ahead than it must.
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65'536);
    return v1::Hpvm::NewStub(
        grpc::CreateCustomChannel(config_.server_listen, grpc::InsecureChannelCredentials(), arguments));
  }

  std::string folder_;
  Config config_;
  std::unique_ptr<Daemon> daemon_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Client>> clients_;  // Keyed by tenant.
};

// The library reports each change once, and the end of every job, though the daemon is restarted meanwhile.
TEST_F(WatchCallsTest, JobsAcrossARestart) {
  Start();
  const std::string early = Submit("ann");
  ASSERT_TRUE(ClientOf("ann").WaitJob(early).ok());
  std::mutex mutex;
  std::multiset<std::string> told;  // Id, state and attempt.
  std::set<std::string> ended;
  std::atomic<bool> listed = false;
  std::thread watcher([&] {
    WatchJobsOptions options;
    options.call.timeout = std::chrono::seconds(60);
    options.on_listed = [&] { return listed = true; };
    const Status status = ClientOf("ann").WatchJobs(options, [&](const v1::JobChange& change) {
      const v1::Job& job = change.job();
      std::lock_guard lock(mutex);
      told.insert(job.id() + " " + std::to_string(job.state()) + " " + std::to_string(job.attempt()));
      if (job.state() >= v1::JOB_STATE_SUCCEEDED) {
        ended.insert(job.id());
      }
      return ended.size() < 9;
    });
    EXPECT_TRUE(status.ok()) << status;
  });
  while (!listed) {
    usleep(1'000);
  }
  std::set<std::string> ids = {early};
  for (int i = 0; i < 8; ++i) {
    ids.insert(Submit("ann"));
    if (i == 3) {
      Stop();
      Start();
    }
  }
  watcher.join();
  EXPECT_EQ(ended, ids);
  for (const std::string& one : told) {
    EXPECT_EQ(told.count(one), 1u) << one;
  }
}

// A client that does not read gets a list for what it missed, and the reason; nobody's jobs wait for it.
TEST_F(WatchCallsTest, SlowReadersGetALaterList) {
  config_.jobs_watch_bytes_per_tenant_max = 64 * limits::kKiB;
  Start();
  const auto stub = Stub();
  const auto context = Context("ann");
  const auto reader = stub->WatchJobs(context.get(), v1::WatchJobsRequest());
  v1::WatchJobsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(response.list_begins() && response.list_ends());
  EXPECT_EQ(response.list_reason(), "");
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    ids.insert(Submit("ann", 7'500));
  }
  for (const std::string& id : ids) {
    EXPECT_TRUE(ClientOf("ann").WaitJob(id).ok());
  }
  std::set<std::string> ended;
  std::string reason;
  while (ended != ids && reader->Read(&response)) {
    reason = response.list_begins() ? response.list_reason() : reason;
    for (const v1::JobChange& change : response.changes()) {
      if (change.job().state() == v1::JOB_STATE_SUCCEEDED) {
        ended.insert(change.job().id());
      }
    }
  }
  EXPECT_EQ(ended, ids);
  EXPECT_THAT(reason, HasSubstr("faster than they were read"));
  context->TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// Watchers that went away free their places; a tenant's own limit leaves others theirs.
TEST_F(WatchCallsTest, PlacesComeBack) {
  config_.jobs_watchers_per_tenant_max = 2;
  Start();
  const auto stub = Stub();
  const auto open = [&](const std::string& tenant, bool devices, bool until_there_is_room) {
    for (;;) {
      auto context = Context(tenant);
      grpc::Status ended;
      bool is_open = false;
      if (devices) {
        auto reader = stub->WatchDevices(context.get(), v1::WatchDevicesRequest());
        v1::WatchDevicesResponse response;
        is_open = reader->Read(&response) && response.has_now() && !response.cursor().empty();
        Cancel(is_open, *context);
        ended = reader->Finish();
      } else {
        auto reader = stub->WatchJobs(context.get(), v1::WatchJobsRequest());
        v1::WatchJobsResponse response;
        is_open = reader->Read(&response);
        Cancel(is_open, *context);
        ended = reader->Finish();
      }
      if (is_open || !until_there_is_room) {
        return is_open ? grpc::Status::OK : ended;
      }
      EXPECT_EQ(ended.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      usleep(1'000);
    }
  };
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(open("ann", i % 2 == 0, true).ok());
  }
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobsResponse>>> readers;
  while (readers.size() < 2) {
    contexts.push_back(Context("ann"));
    auto reader = stub->WatchJobs(contexts.back().get(), v1::WatchJobsRequest());
    v1::WatchJobsResponse response;
    if (reader->Read(&response)) {
      readers.push_back(std::move(reader));
    }
  }
  EXPECT_EQ(open("ann", true, false).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(open("ann", false, false).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(open("bob", true, false).ok());
  EXPECT_TRUE(open("bob", false, true).ok());
  v1::WatchJobsRequest wrong;
  wrong.set_cursor("nonsense");
  const auto context = Context("bob");
  EXPECT_EQ(stub->WatchJobs(context.get(), wrong)->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  wrong.set_cursor(std::string(40'000, '1'));
  const auto large = Context("bob");
  EXPECT_EQ(stub->WatchJobs(large.get(), wrong)->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::WatchDevicesRequest too_large;
  too_large.set_cursor(std::string(40'000, '1'));
  const auto devices = Context("bob");
  EXPECT_EQ(stub->WatchDevices(devices.get(), too_large)->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // A daemon that stops ends them with the advice to reconnect.
  Stop();
  for (const auto& reader : readers) {
    v1::WatchJobsResponse response;
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

// Devices that a later daemon has in addition, or no longer has; unchanged ones are not reported.
TEST_F(WatchCallsTest, DevicesAcrossRestarts) {
  config_.devices_backends = "cpu,opencl";
  Start();
  ASSERT_TRUE(ClientOf("ann").WatchDevices([](const auto&, const auto&) { return false; }).ok());
  const bool has_another = ClientOf("ann").ListDevices()->size() > 1;
  Stop();
  if (!has_another) {
    GTEST_SKIP() << "There is no OpenCL device here.";
  }
  config_.devices_backends = "cpu";
  Start();
  std::mutex mutex;
  std::vector<std::string> told;
  std::thread watcher([&] {
    CallOptions call;
    call.timeout = std::chrono::seconds(60);
    const Status status = ClientOf("ann").WatchDevices(
        [&](const v1::ListDevicesResponse& now, const std::vector<DeviceChange>& changes) {
          std::lock_guard lock(mutex);
          for (const DeviceChange& change : changes) {
            told.push_back(std::to_string(static_cast<int>(change.kind)) + " " + change.device.id());
          }
          return told.empty() || told.back().front() != '2' || now.devices_size() == 0;
        },
        call);
    EXPECT_TRUE(status.ok()) << status;
  });
  const auto await = [&](const std::string& what) {
    for (int i = 0; i < 20'000; ++i) {
      {
        std::lock_guard lock(mutex);
        if (std::find(told.begin(), told.end(), what) != told.end()) {
          return true;
        }
      }
      usleep(1'000);
    }
    return false;
  };
  EXPECT_TRUE(await("0 cpu:0"));
  Stop();
  config_.devices_backends = "cpu,opencl";
  Start();
  EXPECT_TRUE(await("0 opencl:0"));
  Stop();
  config_.devices_backends = "cpu";
  Start();
  EXPECT_TRUE(await("2 opencl:0"));
  watcher.join();
}

}  // namespace
}  // namespace hpvm::server
