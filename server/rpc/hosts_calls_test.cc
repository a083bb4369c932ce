// SPDX-License-Identifier: Apache-2.0
// Tests the calls about hosts, against a cluster that is made up.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "hpvm/v1/operations.grpc.pb.h"
#include "server/front/client_ring.h"
#include "server/identity/authenticator.h"
#include "server/rpc/host_admin.h"
#include "server/rpc/service.h"
#include "server/testing/access_fixture.h"

namespace hpvm::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A cluster of lab-a and lab-b, which answers at once, or later on a thread of its own.
class FakeHosts final : public HostAdmin {
 public:
  ~FakeHosts() override { Join(); }

  void List(v1::ListHostsResponse* response, Done done) override {
    Answer([this, response, done = std::move(done)] {
      for (const auto& [name, intake] : intakes) {
        v1::Host& host = *response->add_hosts();
        host.set_name(name);
        host.set_intake(intake);
      }
      done(listed);
    });
  }

  void SetIntake(const std::string& host, v1::HostIntake intake, v1::Host* host_out, Done done) override {
    Answer([this, host, intake, host_out, done = std::move(done)] {
      const auto found = intakes.find(host);
      if (found == intakes.end()) {
        done(Outcome(NotFound("No host \"" + host + "\" ever joined.")));
        return;
      }
      found->second = intake;
      host_out->set_name(host);
      host_out->set_intake(intake);
      done(Outcome());
    });
  }

  std::map<std::string, v1::HostIntake> intakes = {{"lab-a", v1::HOST_INTAKE_OPEN}, {"lab-b", v1::HOST_INTAKE_OPEN}};
  Outcome listed;
  bool answers_later = false;

 private:
  void Answer(std::function<void()> answer) {
    Join();
    if (!answers_later) {
      answer();
      return;
    }
    thread_ = std::thread([answer = std::move(answer)] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      answer();
    });
  }
  void Join() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  std::thread thread_;
};

// A second server over the daemon's parts, which is part of a cluster.
class HostsCallsTest : public AccessFixture {
 protected:
  ~HostsCallsTest() override { server_.reset(); }

  void SetUp() override {
    Start();
    MakeTenant("ann");
    admin_ = MakeToken("ann", Role::kAdmin).secret;
    operator_ = MakeToken("ann", Role::kOperator).secret;
    authenticator_ = std::make_unique<Authenticator>(config_, daemon_->directory(), mint_, RealClock());
    Access access;
    access.directory = &daemon_->directory();
    access.authenticator = authenticator_.get();
    access.audit = &daemon_->audit();
    access.hosts = &hosts_;
    StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(
        daemon_->core(), {ListenAddress{.is_unix = true, .target = folder_ + "/c"}}, access, LocalCallers{});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ =
        v1::Operations::NewStub(grpc::CreateChannel(server_->addresses().front(), grpc::InsecureChannelCredentials()));
  }

  grpc::Status List(const std::string& secret, std::vector<std::string>* names) {
    v1::ListHostsResponse response;
    const grpc::Status status = stub_->ListHosts(With(secret).get(), v1::ListHostsRequest(), &response);
    for (const v1::Host& host : response.hosts()) {
      names->push_back(host.name());
    }
    return status;
  }

  grpc::Status Set(const std::string& secret, const std::string& host, int intake,
                   v1::SetHostIntakeResponse* response) {
    v1::SetHostIntakeRequest request;
    request.set_host(host);
    request.set_intake(static_cast<v1::HostIntake>(intake));
    return stub_->SetHostIntake(With(secret).get(), request, response);
  }

  // Returns the audit's records of SetHostIntake.
  std::vector<std::string> Records() {
    EXPECT_TRUE(daemon_->audit().Flush().ok());
    std::vector<std::string> records;
    EXPECT_TRUE(daemon_->audit()
                    .Read(0,
                          [&](std::string_view line) {
                            if (line.find("SetHostIntake") != std::string_view::npos) {
                              records.emplace_back(line);
                            }
                            return true;
                          })
                    .ok());
    return records;
  }

  FakeHosts hosts_;
  TicketMint mint_{SystemRng()};
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::Operations::Stub> stub_;
  std::string admin_, operator_;
};

TEST_F(HostsCallsTest, Lists) {
  for (const bool later : {false, true}) {
    hosts_.answers_later = later;
    for (const std::string& secret : {admin_, operator_}) {
      std::vector<std::string> names;
      const grpc::Status status = List(secret, &names);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_THAT(names, ElementsAre("lab-a", "lab-b"));
    }
  }
}

TEST_F(HostsCallsTest, FailuresOfTheClusterArrive) {
  hosts_.listed = Later(Unavailable("The cluster's database does not answer."), std::chrono::seconds(2));
  std::vector<std::string> names;
  const grpc::Status status = List(admin_, &names);
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "The cluster's database does not answer.");
  EXPECT_FALSE(status.error_details().empty());
}

// Each setting is passed on and leaves one record, with the host and the setting.
TEST_F(HostsCallsTest, SetsTheIntake) {
  for (const int intake : {v1::HOST_INTAKE_DRAINING, v1::HOST_INTAKE_CORDONED, v1::HOST_INTAKE_OPEN}) {
    hosts_.answers_later = !hosts_.answers_later;
    v1::SetHostIntakeResponse response;
    const grpc::Status status = Set(admin_, "lab-b", intake, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.host().name(), "lab-b");
    EXPECT_EQ(response.host().intake(), intake);
    EXPECT_EQ(hosts_.intakes["lab-b"], intake);
  }
  EXPECT_EQ(hosts_.intakes["lab-a"], v1::HOST_INTAKE_OPEN);
  const std::vector<std::string> records = Records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_THAT(records[0], HasSubstr("\"object\":\"lab-b\""));
  EXPECT_THAT(records[0], HasSubstr("HOST_INTAKE_DRAINING"));
}

TEST_F(HostsCallsTest, RefusesUnknownSettingsAndHosts) {
  for (const int intake : {0, 4, -1}) {
    v1::SetHostIntakeResponse response;
    const grpc::Status status = Set(admin_, "lab-a", intake, &response);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("(" + std::to_string(intake) + ")"));
  }
  v1::SetHostIntakeResponse response;
  EXPECT_EQ(Set(admin_, "lab-c", v1::HOST_INTAKE_OPEN, &response).error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(Set(operator_, "lab-a", v1::HOST_INTAKE_DRAINING, &response).error_code(), grpc::PERMISSION_DENIED);
  EXPECT_EQ(hosts_.intakes["lab-a"], v1::HOST_INTAKE_OPEN);
}

// The daemon's own server is not part of a cluster.
TEST_F(HostsCallsTest, WithoutACluster) {
  stub_ = v1::Operations::NewStub(channel_);
  std::vector<std::string> names;
  v1::SetHostIntakeResponse response;
  for (const grpc::Status& status : {List(admin_, &names), Set(admin_, "lab-a", v1::HOST_INTAKE_OPEN, &response)}) {
    EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
    EXPECT_EQ(status.error_message(),
              "The server is not part of a cluster: its configuration names no [cluster] database.");
  }
}

}  // namespace
}  // namespace hpvm::server
