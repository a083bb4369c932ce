// SPDX-License-Identifier: Apache-2.0
// Tests of the administration calls against a fake server: pages, calls that are retried and calls that never are.
#include "hpvm/admin.h"

#include <stdlib.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "hpvm/v1/admin.grpc.pb.h"
#include "hpvm/v1/operations.grpc.pb.h"

namespace hpvm {
namespace {

using testing::ElementsAre;

grpc::Status Lost() { return {grpc::StatusCode::UNAVAILABLE, "Socket closed"}; }

class FakeAdmin final : public v1::Admin::Service {
 public:
  grpc::Status CreateTenant(grpc::ServerContext*, const v1::CreateTenantRequest*, v1::CreateTenantResponse*) override {
    ++creations;
    return Lost();
  }
  grpc::Status CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest*, v1::CreateTokenResponse*) override {
    ++creations;
    return Lost();
  }
  grpc::Status UpdateTenant(grpc::ServerContext*, const v1::UpdateTenantRequest* request,
                            v1::UpdateTenantResponse* out) override {
    out->mutable_tenant()->set_name(request->name());
    return ++updates == 1 ? Lost() : grpc::Status::OK;
  }
  grpc::Status ListTenants(grpc::ServerContext*, const v1::ListTenantsRequest* request,
                           v1::ListTenantsResponse* out) override {
    const bool is_first = request->page_token().empty();
    for (const char* name : is_first ? std::vector<const char*>{"a", "b"} : std::vector<const char*>{"c"}) {
      out->add_tenants()->set_name(name);
    }
    out->set_next_page_token(is_first ? "b" : "");
    return grpc::Status::OK;
  }
  grpc::Status ReadAudit(grpc::ServerContext* context, const v1::ReadAuditRequest*,
                         grpc::ServerWriter<v1::ReadAuditResponse>* out) override {
    v1::ReadAuditResponse part;
    part.add_records("one");
    part.add_records("two");
    out->Write(part);
    part.Clear();
    part.add_records("three");
    out->Write(part);
    return audit_ends;
  }

  int creations = 0, updates = 0;
  grpc::Status audit_ends = grpc::Status::OK;
};

class FakeOperations final : public v1::Operations::Service {
 public:
  grpc::Status ListAccounts(grpc::ServerContext*, const v1::ListAccountsRequest* request,
                            v1::ListAccountsResponse* out) override {
    const bool is_first = request->page_token().empty();
    if (is_first && ++calls == 1) {
      return Lost();
    }
    for (uint32_t day : is_first ? std::vector<uint32_t>{1, 2} : std::vector<uint32_t>{3}) {
      out->add_accounts()->set_day(day + request->first_day());
      out->mutable_accounts()->rbegin()->set_tenant(request->tenant());
    }
    out->set_next_page_token(is_first ? "2/a" : "");
    return grpc::Status::OK;
  }

  grpc::Status ListHosts(grpc::ServerContext*, const v1::ListHostsRequest*, v1::ListHostsResponse* out) override {
    if (++calls == 1) {
      return Lost();
    }
    out->add_hosts()->set_name("lab-a");
    out->add_hosts()->set_name("lab-b");
    return grpc::Status::OK;
  }
  grpc::Status SetHostIntake(grpc::ServerContext*, const v1::SetHostIntakeRequest* request,
                             v1::SetHostIntakeResponse* out) override {
    if (++calls == 1) {
      return Lost();
    }
    out->mutable_host()->set_name(request->host());
    out->mutable_host()->set_intake(request->intake());
    return grpc::Status::OK;
  }

  int calls = 0;
};

class AdminTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hpvm-admin-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    const std::string endpoint = "unix:" + folder_ + "/s.sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint, grpc::InsecureServerCredentials());
    builder.RegisterService(&fake_);
    builder.RegisterService(&operations_);
    server_ = builder.BuildAndStart();
    StatusOr<std::unique_ptr<Client>> client = Client::Connect({.endpoint = endpoint});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void TearDown() override {
    client_ = nullptr;
    server_ = nullptr;
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
  FakeAdmin fake_;
  FakeOperations operations_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(AdminTest, ListsEveryPage) {
  const auto tenants = Admin(*client_).ListTenants();
  ASSERT_TRUE(tenants.ok()) << tenants.status();
  std::vector<std::string> names;
  for (const v1::Tenant& tenant : *tenants) {
    names.push_back(tenant.name());
  }
  EXPECT_THAT(names, ElementsAre("a", "b", "c"));
}

// Each page carries the query; read-only calls are retried.
TEST_F(AdminTest, ListsEveryPageOfAccounts) {
  v1::ListAccountsRequest request;
  request.set_tenant("*");
  request.set_first_day(20);
  const auto accounts = Admin(*client_).ListAccounts(request);
  ASSERT_TRUE(accounts.ok()) << accounts.status();
  std::vector<std::string> found;
  for (const v1::Account& account : *accounts) {
    found.push_back(std::to_string(account.day()) + account.tenant());
  }
  EXPECT_THAT(found, ElementsAre("21*", "22*", "23*"));
  EXPECT_EQ(operations_.calls, 2);
}

// Both calls about hosts may be carried out twice, so a lost response is no failure.
TEST_F(AdminTest, ListsAndSetsHosts) {
  const auto hosts = Admin(*client_).ListHosts();
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  ASSERT_EQ(hosts->size(), 2u);
  EXPECT_EQ((*hosts)[1].name(), "lab-b");
  operations_.calls = 0;
  const auto host = Admin(*client_).SetHostIntake("lab-b", v1::HOST_INTAKE_DRAINING);
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(host->name(), "lab-b");
  EXPECT_EQ(host->intake(), v1::HOST_INTAKE_DRAINING);
  EXPECT_EQ(operations_.calls, 2);
}

// A lost response may hide a success: only calls that may be carried out twice are retried.
TEST_F(AdminTest, SendsAgainOnlyWhatMayBeDoneTwice) {
  v1::UpdateTenantRequest update;
  update.set_name("a");
  EXPECT_EQ(Admin(*client_).UpdateTenant(update)->name(), "a");
  EXPECT_EQ(fake_.updates, 2);
  EXPECT_EQ(Admin(*client_).CreateTenant({}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Admin(*client_).CreateToken({}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fake_.creations, 2);
}

TEST_F(AdminTest, ReadsTheAuditUntilItHasEnough) {
  const auto read = [&](size_t records_max) {
    std::vector<std::string> records;
    const Status status = Admin(*client_).ReadAudit({}, [&](std::string_view record) {
      records.emplace_back(record);
      return records.size() < records_max;
    });
    return std::pair(status, records);
  };
  EXPECT_THAT(read(9).second, ElementsAre("one", "two", "three"));
  EXPECT_TRUE(read(1).first.ok());
  EXPECT_THAT(read(1).second, ElementsAre("one"));
  // Records read before a failure are not taken for the whole log.
  fake_.audit_ends = {grpc::StatusCode::DATA_LOSS, "A file is gone."};
  EXPECT_EQ(read(9).first.code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hpvm
