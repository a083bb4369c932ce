// SPDX-License-Identifier: Apache-2.0
// Calls every method of every service in the descriptors over the network with each kind of credential, and compares
// with tests/golden/identity/authorisation.txt (HPVMD_BLESS=1 rewrites it).
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "base/failpoint.h"
#include "hpvm/v1/operations.pb.h"
#include "server/identity/methods.h"
#include "server/testing/access_fixture.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

constexpr char kGolden[] = HPVMD_SOURCE_DIR "/tests/golden/identity/authorisation.txt";

std::vector<std::string> MethodsOfDescriptors() {
  std::vector<std::string> paths;
  for (const google::protobuf::FileDescriptor* file :
       {v1::ServerInfoRequest::descriptor()->file(), v1::ReadAuditRequest::descriptor()->file(),
        v1::GetOverviewRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        paths.push_back("/" + file->service(s)->full_name() + "/" + file->service(s)->method(m)->name());
      }
    }
  }
  return paths;
}

// The table has every existing method, once, and nothing else.
TEST(MethodsTest, TableIsThatOfTheDescriptors) {
  std::vector<std::string> table;
  for (const MethodFacts& method : kMethods) {
    table.emplace_back(method.path);
  }
  EXPECT_THAT(table, testing::UnorderedElementsAreArray(MethodsOfDescriptors()));
  EXPECT_EQ(FindMethod("/hpvm.v1.Hpvm/Nothing"), nullptr);
  EXPECT_EQ(FindMethod(""), nullptr);
}

class AuthorisationTest : public AccessFixture {
 protected:
  struct Credential {
    const char* name;
    std::string secret, tenant;
  };

  void StartWithTenants() {
    Start();
    for (const char* tenant : {"ann", "bob", "gone"}) {
      MakeTenant(tenant);
    }
    const std::string gone = MakeToken("gone", Role::kUser).secret;
    v1::UpdateTenantRequest disable;
    disable.set_name("gone");
    disable.set_disabled(true);
    ASSERT_TRUE(daemon_->directory().UpdateTenant(disable).ok());
    const Directory::NewToken revoked = MakeToken("ann", Role::kAdmin);
    ASSERT_TRUE(daemon_->directory().RevokeToken(revoked.token.id()).ok());
    const std::string user = MakeToken("ann", Role::kUser).secret, oper = MakeToken("ann", Role::kOperator).secret;
    const std::string admin = MakeToken("ann", Role::kAdmin).secret;
    credentials_ = {{"none", "", ""},
                    {"bad", "hpvm_" + std::string(32, 'c') + std::string(32, '5'), ""},
                    {"expired", MakeToken("ann", Role::kAdmin, 1).secret, ""},
                    {"revoked", revoked.secret, ""},
                    {"disabled", gone, ""},
                    {"foreign", oper, "bob"},  // Acts for a tenant other than the caller's.
                    {"user", user, ""},
                    {"operator", oper, ""},
                    {"admin", admin, ""},
                    {"admin-for", admin, "bob"}};
  }

  // Sends one empty message, or ends the stream at once when it takes none.
  grpc::Status Call(const std::string& path, const Credential& credential) {
    const auto context = With(credential.secret, credential.tenant);
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    const auto call = stub.PrepareCall(context.get(), path, &queue);
    call->StartCall(nullptr);
    await();
    const grpc::Slice nothing;
    call->WriteLast(grpc::ByteBuffer(&nothing, 1), grpc::WriteOptions(), nullptr);
    await();
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    while (await()) {
      if (path.find("/Watch") != std::string::npos) {
        context->TryCancel();  // It was accepted, and would continue.
      }
      call->Read(&answer, nullptr);
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    await();
    queue.Shutdown();
    while (await()) {
    }
    return status;
  }

  // Counts the audit lines with this text.
  int Records(const std::string& text) {
    EXPECT_TRUE(daemon_->audit().Flush().ok());
    int count = 0;
    EXPECT_TRUE(daemon_->audit()
                    .Read(0,
                          [&](std::string_view line) {
                            count += line.find(text) != std::string_view::npos ? 1 : 0;
                            return true;
                          })
                    .ok());
    return count;
  }

  std::vector<Credential> credentials_;
};

std::string VerdictOf(const grpc::Status& status) {
  return status.error_code() == grpc::UNAUTHENTICATED     ? "-"
         : status.error_code() == grpc::PERMISSION_DENIED ? "no"
                                                          : "yes";
}

TEST_F(AuthorisationTest, EveryMethodWithEveryCredential) {
  StartWithTenants();
  std::string table =
      "# Who may call what: \"-\" UNAUTHENTICATED, \"no\" PERMISSION_DENIED, \"yes\" let in.\n"
      "# foreign: an operator who acts for another tenant; admin-for: an administrator who does.\n#";
  for (const Credential& credential : credentials_) {
    table += std::string(" ") + credential.name;
  }
  table += "\n";
  for (const std::string& path : MethodsOfDescriptors()) {
    table += path;
    for (const Credential& credential : credentials_) {
      table += " " + VerdictOf(Call(path, credential));
    }
    table += "\n";
  }
  if (std::getenv("HPVMD_BLESS") != nullptr) {
    std::ofstream(kGolden) << table;
  }
  std::stringstream golden;
  golden << std::ifstream(kGolden).rdbuf();
  EXPECT_EQ(table, golden.str()) << "HPVMD_BLESS=1 rewrites " << kGolden;
}

// A call that changes something leaves one record, a read none; a refusal leaves one, too.
TEST_F(AuthorisationTest, EachChangeLeavesOneRecord) {
  StartWithTenants();
  const Credential& admin = credentials_[8];
  ASSERT_STREQ(admin.name, "admin");
  for (const std::string& path : MethodsOfDescriptors()) {
    const std::string mark = "\"method\":\"" + path + "\"";
    const grpc::Status status = Call(path, admin);
    EXPECT_EQ(Records(mark), FindMethod(path)->change == Change::kState ? 1 : 0)
        << path << ": " << status.error_code() << " " << status.error_message();
    EXPECT_EQ(Call(path, credentials_[0]).error_code(), grpc::UNAUTHENTICATED);
    EXPECT_EQ(Records(mark + ",\"object\":\"\",\"verdict\":\"UNAUTHENTICATED\""), 1) << path;
  }
  // No secrets are in the audit.
  for (const Credential& credential : credentials_) {
    if (!credential.secret.empty()) {
      EXPECT_EQ(Records(credential.secret.substr(5, 16)), 0) << credential.name;
    }
  }
}

// Health is open to callers without credentials: load balancers, and the service manager.
TEST_F(AuthorisationTest, HealthIsOpenAndNothingElse) {
  config_.server_reflection = true;
  StartWithTenants();
  EXPECT_NE(Call("/grpc.health.v1.Health/Check", credentials_[0]).error_code(), grpc::UNAUTHENTICATED);
  for (const char* path : {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/hpvm.v1.Hpvm/Nothing",
                           "/hpvm.v2.Hpvm/ServerInfo", "/grpc.channelz.v1.Channelz/GetServers"}) {
    EXPECT_EQ(Call(path, credentials_[8]).error_code(), grpc::UNIMPLEMENTED) << path;
  }
}

// Reflection is served only when configured, on open daemons, whatever is linked into them.
TEST_F(AuthorisationTest, ReflectionIsOffUnlessAskedFor) {
  config_.auth_tokens = false;
  Start();
  const Credential nobody{"none", "", ""};
  const char* path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  EXPECT_EQ(Call(path, nobody).error_code(), grpc::UNIMPLEMENTED);
  Stop();
  config_.server_reflection = true;
  Start();
  EXPECT_EQ(Call(path, nobody).error_code(), grpc::OK);
}

// At the limit, and one more: wrong credentials are told to wait, and the right one is still accepted.
TEST_F(AuthorisationTest, WrongCredentialsAreSlowedDown) {
  config_.auth_failures_per_second_max = 3;
  StartWithTenants();
  int refused = 0, slowed = 0;
  v1::ErrorDetail detail;
  for (int i = 0; i < 200 && slowed == 0; ++i) {
    const grpc::Status status = Call("/hpvm.v1.Hpvm/ServerInfo", credentials_[1]);
    refused += status.error_code() == grpc::UNAUTHENTICATED ? 1 : 0;
    if (status.error_code() == grpc::RESOURCE_EXHAUSTED) {
      ++slowed;
      v1::Status parts;
      ASSERT_TRUE(parts.ParseFromString(status.error_details()));
      ASSERT_TRUE(parts.details(0).UnpackTo(&detail));
    }
  }
  EXPECT_EQ(slowed, 1);
  EXPECT_GE(refused, 3);
  EXPECT_GT(detail.retry_after_ns(), 0u);
  EXPECT_LE(detail.retry_after_ns(), 1'000'000'000u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Call("/hpvm.v1.Hpvm/ServerInfo", credentials_[6]).ok());
  }
}

// Revoked rights are gone with the next call.
TEST_F(AuthorisationTest, RightsEndAtOnce) {
  StartWithTenants();
  const auto admin = v1::Admin::NewStub(channel_);
  v1::CreateTokenRequest spec;
  spec.set_tenant("bob");
  v1::CreateTokenResponse made;
  ASSERT_TRUE(admin->CreateToken(With(credentials_[8].secret).get(), spec, &made).ok());
  v1::ServerInfoResponse info;
  ASSERT_TRUE(Info(*With(made.secret()), &info).ok());
  EXPECT_EQ(info.tenant(), "bob");
  EXPECT_EQ(info.role(), "user");
  EXPECT_EQ(info.caller(), "token " + made.token().id());
  v1::UpdateTenantRequest update;
  update.set_name("bob");
  update.set_disabled(true);
  update.set_disabled_reason("Not paid.");
  v1::UpdateTenantResponse updated;
  ASSERT_TRUE(admin->UpdateTenant(With(credentials_[8].secret).get(), update, &updated).ok());
  const grpc::Status disabled = Info(*With(made.secret()), &info);
  EXPECT_EQ(disabled.error_code(), grpc::PERMISSION_DENIED);
  EXPECT_THAT(disabled.error_message(), HasSubstr("is disabled: Not paid."));
  update.set_disabled(false);
  ASSERT_TRUE(admin->UpdateTenant(With(credentials_[8].secret).get(), update, &updated).ok());
  EXPECT_TRUE(Info(*With(made.secret()), &info).ok());
  v1::RevokeTokenRequest revoke;
  revoke.set_id(made.token().id());
  v1::RevokeTokenResponse revoked;
  ASSERT_TRUE(admin->RevokeToken(With(credentials_[8].secret).get(), revoke, &revoked).ok());
  EXPECT_EQ(Info(*With(made.secret()), &info).error_code(), grpc::UNAUTHENTICATED);
}

// A disk that is slow at storing rights delays calls that change them, and no others.
TEST_F(AuthorisationTest, SlowDisksOfRightsDelayNobody) {
  StartWithTenants();
  ASSERT_TRUE(SetFailpoints("identity.write.before=sleep(1000)").ok());
  std::atomic<int> created = 0;
  std::vector<std::thread> operators;
  for (int i = 0; i < 4; ++i) {  // gRPC has fewer threads on a small machine.
    operators.emplace_back([&] {
      v1::CreateTokenResponse made;
      const grpc::Status status = v1::Admin::NewStub(channel_)->CreateToken(With(credentials_[7].secret).get(),
                                                                            v1::CreateTokenRequest(), &made);
      created += status.ok() && !made.secret().empty() ? 1 : 0;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  v1::ServerInfoResponse info;
  EXPECT_TRUE(Info(*With(credentials_[6].secret), &info).ok());
  EXPECT_EQ(created, 0);
  for (std::thread& thread : operators) {
    thread.join();
  }
  EXPECT_EQ(created, 4);
  ASSERT_TRUE(SetFailpoints("").ok());
}

// Operators manage users of their own tenant, and nobody grants more rights than they have.
TEST_F(AuthorisationTest, OperatorsGiveAndTakeUsersTokensOnly) {
  StartWithTenants();
  const auto admin = v1::Admin::NewStub(channel_);
  const std::string oper = credentials_[7].secret;
  const auto create = [&](const std::string& tenant, v1::Role role) {
    v1::CreateTokenRequest spec;
    spec.set_tenant(tenant);
    spec.set_role(role);
    v1::CreateTokenResponse made;
    return admin->CreateToken(With(oper).get(), spec, &made).error_code();
  };
  EXPECT_EQ(create("", v1::ROLE_USER), grpc::OK);
  EXPECT_EQ(create("ann", v1::ROLE_UNSPECIFIED), grpc::OK);
  EXPECT_EQ(create("ann", v1::ROLE_OPERATOR), grpc::PERMISSION_DENIED);
  EXPECT_EQ(create("ann", v1::ROLE_ADMIN), grpc::PERMISSION_DENIED);
  EXPECT_EQ(create("ann", static_cast<v1::Role>(9)), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(create("bob", v1::ROLE_USER), grpc::NOT_FOUND);
  const auto revoke = [&](const std::string& id) {
    v1::RevokeTokenRequest request;
    request.set_id(id);
    v1::RevokeTokenResponse response;
    return admin->RevokeToken(With(oper).get(), request, &response).error_code();
  };
  EXPECT_EQ(revoke(MakeToken("ann", Role::kUser).token.id()), grpc::OK);
  EXPECT_EQ(revoke(MakeToken("ann", Role::kAdmin).token.id()), grpc::PERMISSION_DENIED);
  EXPECT_EQ(revoke(MakeToken("bob", Role::kUser).token.id()), grpc::NOT_FOUND);
  EXPECT_EQ(revoke("tok-nothing"), grpc::NOT_FOUND);
}

}  // namespace
}  // namespace hpvm::server
