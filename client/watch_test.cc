// SPDX-License-Identifier: Apache-2.0
// Tests of watches against a fake server whose streams break.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "hpvm/client.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {
namespace {

using testing::ElementsAre;

// The test defines each stream by its number, from 1.
class FakeServer final : public v1::Hpvm::Service {
 public:
  grpc::Status ServerInfo(grpc::ServerContext*, const v1::ServerInfoRequest*, v1::ServerInfoResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status WatchJobs(grpc::ServerContext*, const v1::WatchJobsRequest* request,
                         grpc::ServerWriter<v1::WatchJobsResponse>* out) override {
    cursors.push_back(request->cursor());
    return on_jobs(cursors.size(), out);
  }
  grpc::Status WatchDevices(grpc::ServerContext*, const v1::WatchDevicesRequest* request,
                            grpc::ServerWriter<v1::WatchDevicesResponse>* out) override {
    cursors.push_back(request->cursor());
    return on_devices(cursors.size(), out);
  }
  std::vector<std::string> cursors;  // Cursors of the requests.
  std::function<grpc::Status(size_t, grpc::ServerWriter<v1::WatchJobsResponse>*)> on_jobs;
  std::function<grpc::Status(size_t, grpc::ServerWriter<v1::WatchDevicesResponse>*)> on_devices;
};

grpc::Status Lost() { return {grpc::StatusCode::UNAVAILABLE, "Socket closed"}; }

class WatchTest : public testing::Test {
 protected:
  WatchTest() {
    char folder[] = "/tmp/hpvm-watch-XXXXXX";
    folder_ = mkdtemp(folder);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder_ + "/s", grpc::InsecureServerCredentials());
    builder.RegisterService(&fake_);
    server_ = builder.BuildAndStart();
    ClientOptions options;
    options.endpoint = "unix:" + folder_ + "/s";
    options.patience = std::chrono::seconds(5);
    StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  ~WatchTest() override {
    client_.reset();
    server_->Shutdown();
    std::filesystem::remove_all(folder_);
  }
  static void Send(grpc::ServerWriter<v1::WatchJobsResponse>* out, const std::string& id, v1::JobState state,
                   uint64_t change, const std::string& cursor, bool is_list = false) {
    v1::WatchJobsResponse response;
    v1::Job& job = *response.add_changes()->mutable_job();
    job.set_id(id);
    job.set_state(state);
    job.set_change(change);
    response.set_cursor(cursor);
    response.set_list_begins(is_list);
    response.set_list_ends(is_list);
    out->Write(response);
  }

  std::string folder_;
  FakeServer fake_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

// Streams that break, end, are refused for lack of room, or begin again with a list: each change is reported once.
TEST_F(WatchTest, JobsGoOn) {
  fake_.on_jobs = [](size_t call, grpc::ServerWriter<v1::WatchJobsResponse>* out) -> grpc::Status {
    switch (call) {
      case 1:
        Send(out, "a", v1::JOB_STATE_QUEUED, 0, "c1", /*is_list=*/true);
        Send(out, "a", v1::JOB_STATE_RUNNING, 3, "c2");
        return Lost();
      case 2:
        return {grpc::StatusCode::RESOURCE_EXHAUSTED,
                "The tenant has 1 watching calls, which is the limit (jobs.watchers_per_tenant_max)."};
      case 3:
        Send(out, "a", v1::JOB_STATE_RUNNING, 3, "c3");
        return grpc::Status::OK;  // Servers end old streams.
      case 4:
        Send(out, "a", v1::JOB_STATE_RUNNING, 1, "d1", /*is_list=*/true);  // Another daemon.
        Send(out, "a", v1::JOB_STATE_SUCCEEDED, 2, "d2");
        return Lost();
      case 5:
        return {grpc::StatusCode::INVALID_ARGUMENT, "The cursor is not one that this server gave to this tenant."};
      default:
        Send(out, "b", v1::JOB_STATE_QUEUED, 0, "e1", /*is_list=*/true);
        return Lost();
    }
  };
  std::vector<std::string> told;
  int listed = 0;
  WatchJobsOptions options;
  options.on_listed = [&] { return ++listed > 0; };
  const Status ended = client_->WatchJobs(options, [&](const v1::JobChange& change) {
    told.push_back(change.has_job() ? change.job().id() + v1::JobState_Name(change.job().state()).substr(9)
                                    : change.gone_job_id() + "_GONE");
    return change.has_job();
  });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_THAT(told, ElementsAre("a_QUEUED", "a_RUNNING", "a_SUCCEEDED", "b_QUEUED", "a_GONE"));
  EXPECT_THAT(fake_.cursors, ElementsAre("", "c2", "c2", "c3", "d2", ""));
  EXPECT_EQ(listed, 1);
}

// Permanent refusals end the watch, as do the timeout and the caller.
TEST_F(WatchTest, Ends) {
  fake_.on_jobs = [](size_t, grpc::ServerWriter<v1::WatchJobsResponse>*) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "No.");
  };
  const auto any = [](const v1::JobChange&) { return true; };
  EXPECT_EQ(client_->WatchJobs({}, any).code(), absl::StatusCode::kPermissionDenied);
  fake_.on_jobs = [](size_t, grpc::ServerWriter<v1::WatchJobsResponse>* out) {
    Send(out, "a", v1::JOB_STATE_QUEUED, 0, "c", /*is_list=*/true);
    usleep(1'000'000);
    return Lost();
  };
  WatchJobsOptions options;
  options.call.timeout = std::chrono::milliseconds(300);
  EXPECT_EQ(client_->WatchJobs(options, any).code(), absl::StatusCode::kDeadlineExceeded);
  options.call.timeout = kNever;
  options.on_listed = [] { return false; };
  EXPECT_TRUE(client_->WatchJobs(options, any).ok());
}

// Devices that appear, change or go are reported as such, even when that happened while no stream was open.
TEST_F(WatchTest, DevicesGoOn) {
  fake_.on_devices = [](size_t call, grpc::ServerWriter<v1::WatchDevicesResponse>* out) {
    v1::WatchDevicesResponse response;
    response.set_cursor("c" + std::to_string(call));
    if (call != 2) {  // Nothing has changed.
      v1::Device& cpu = *response.mutable_now()->add_devices();
      cpu.set_id("cpu:0");
      cpu.set_state(call == 3 ? v1::Device::STATE_BROKEN : v1::Device::STATE_READY);
      if (call != 4) {
        response.mutable_now()->add_devices()->set_id("opencl:0");
      }
    }
    out->Write(response);
    return Lost();
  };
  std::vector<std::string> told;
  const Status ended =
      client_->WatchDevices([&](const v1::ListDevicesResponse& now, const std::vector<DeviceChange>& changes) {
        EXPECT_GE(now.devices_size(), 1);
        for (const DeviceChange& change : changes) {
          told.push_back(std::to_string(static_cast<int>(change.kind)) + " " + change.device.id());
        }
        return now.devices_size() == 2;
      });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_THAT(told, ElementsAre("0 cpu:0", "0 opencl:0", "1 cpu:0", "1 cpu:0", "2 opencl:0"));
  EXPECT_THAT(fake_.cursors, ElementsAre("", "c1", "c2", "c3"));
}

}  // namespace
}  // namespace hpvm
