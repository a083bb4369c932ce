// SPDX-License-Identifier: Apache-2.0
// A daemon with two tenants and credentials, in this process, for tests of access control.
#ifndef HPVMD_SERVER_TESTING_ACCESS_FIXTURE_H_
#define HPVMD_SERVER_TESTING_ACCESS_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "hpvm/v1/admin.grpc.pb.h"
#include "hpvm/v1/service.grpc.pb.h"
#include "server/daemon.h"

namespace hpvm::server {

inline bool HaveExecutor() {
  return access(HPVMD_BINARY_DIR "/hpvm-executor", X_OK) == 0 && access(HPVMD_BINARY_DIR "/hpvm-compiler", X_OK) == 0;
}

class AccessFixture : public ::testing::Test {
 protected:
  AccessFixture() {
    char folder[] = "/tmp/hpvmd-access-test-XXXXXX";
    folder_ = mkdtemp(folder);
    config_.server_listen = "unix:" + folder_ + "/s";
    config_.server_state_dir = folder_ + "/state";
    // Any executable file; without the real executor only calls that need none work.
    config_.executor_path = HaveExecutor() ? HPVMD_BINARY_DIR "/hpvm-executor" : "/bin/false";
    config_.devices_backends = "cpu";
    config_.log_level = "error";
    config_.auth_tokens = true;
    config_.auth_failures_per_second_max = 10'000;
  }
  ~AccessFixture() override {
    Stop();
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    channel_ = grpc::CreateChannel(daemon_->addresses().front(), grpc::InsecureChannelCredentials());
  }
  void Stop() {
    if (daemon_ != nullptr) {
      daemon_->Stop([] { return true; });
      daemon_.reset();
    }
  }

  void MakeTenant(const std::string& name) {
    v1::Tenant tenant;
    tenant.set_name(name);
    EXPECT_TRUE(daemon_->directory().CreateTenant(tenant, 100).ok());
  }
  Directory::NewToken MakeToken(const std::string& tenant, Role role, uint64_t lifetime_ns = 0) {
    Directory::TokenSpec spec;
    spec.tenant = tenant;
    spec.role = role;
    spec.lifetime_ns = lifetime_ns;
    StatusOr<Directory::NewToken> made = daemon_->directory().CreateToken(spec);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.value_or(Directory::NewToken());
  }

  // With that bearer credential; none when empty.
  static std::unique_ptr<grpc::ClientContext> With(const std::string& credential, const std::string& tenant = "") {
    auto context = std::make_unique<grpc::ClientContext>();
    if (!credential.empty()) {
      context->AddMetadata("authorization", "Bearer " + credential);
    }
    if (!tenant.empty()) {
      context->AddMetadata("hpvm-tenant", tenant);
    }
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return context;
  }
  grpc::Status Info(grpc::ClientContext& context, v1::ServerInfoResponse* response) const {
    return v1::Hpvm::NewStub(channel_)->ServerInfo(&context, v1::ServerInfoRequest(), response);
  }

  std::string folder_;
  Config config_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_TESTING_ACCESS_FIXTURE_H_
