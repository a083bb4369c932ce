// SPDX-License-Identifier: Apache-2.0
// Tests of TLS over the network: who is known by a certificate, and who is refused.
#include "server/front/tls.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <time.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "server/front/tls_watch.h"
#include "server/testing/access_fixture.h"
#include "server/testing/test_certificates.h"

namespace hpvm::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsTest : public AccessFixture {
 protected:
  TlsTest() : authority_("the authority") {
    config_.server_listen = "127.0.0.1:0";
    config_.auth_tokens = true;
    config_.auth_certificates = true;
    config_.tls_certificate = folder_ + "/server.pem";
    config_.tls_key = folder_ + "/server.key";
    config_.tls_client_ca = folder_ + "/ca.pem";
    config_.tls_client_certificates = "required";
    WriteServer(authority_.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"}));
    Write(config_.tls_client_ca, authority_.certificate());
  }

  static void Write(const std::string& path, const std::string& text, mode_t mode = 0600) {
    const std::string temporary = path + ".new";
    std::ofstream(temporary, std::ios::binary) << text;
    chmod(temporary.c_str(), mode);
    std::filesystem::rename(temporary, path);
  }
  void WriteServer(const CertifiedKey& server) {
    Write(config_.tls_key, server.key);
    Write(config_.tls_certificate, server.certificate);
  }

  static bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 300; ++i) {
      if (holds()) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

  void StartWithAnn() {
    Start();
    v1::Tenant ann;
    ann.set_name("ann");
    ann.add_certificate_names("ann's laptop");
    ASSERT_TRUE(daemon_->directory().CreateTenant(ann, 10).ok());
  }

  // Calls ServerInfo with that certificate, if any, over a new connection.
  grpc::Status Ask(const std::optional<CertifiedKey>& client, const std::string& token = "",
                   v1::ServerInfoResponse* info = nullptr, const std::string& roots = "") {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = roots.empty() ? authority_.certificate() : roots;
    if (client.has_value()) {
      options.pem_cert_chain = client->certificate;
      options.pem_private_key = client->key;
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel =
        grpc::CreateCustomChannel(daemon_->addresses().front(), grpc::SslCredentials(options), arguments);
    v1::ServerInfoResponse ignored;
    return v1::Hpvm::NewStub(channel)->ServerInfo(With(token).get(), v1::ServerInfoRequest(),
                                                  info != nullptr ? info : &ignored);
  }

  TestAuthority authority_;
};

TEST_F(TlsTest, CertificatesSayWhoCalls) {
  StartWithAnn();
  v1::ServerInfoResponse info;
  const grpc::Status right = Ask(authority_.Issue({"ann's laptop"}), "", &info);
  ASSERT_TRUE(right.ok()) << right.error_message();
  EXPECT_EQ(info.tenant(), "ann");
  EXPECT_EQ(info.role(), "user");
  EXPECT_EQ(info.caller(), "certificate cn=ann's laptop");

  TestAuthority foreign("the authority");  // Same name, another key.
  struct Case {
    const char* name;
    std::optional<CertifiedKey> client;
    grpc::StatusCode want;
  };
  const Case cases[] = {
      {"None", std::nullopt, grpc::UNAVAILABLE},
      {"ForeignAuthority", foreign.Issue({"ann's laptop"}), grpc::UNAVAILABLE},
      {"Expired", authority_.Issue({"ann's laptop", -7'200, -3'600}), grpc::UNAVAILABLE},
      {"NotYet", authority_.Issue({"ann's laptop", 3'600, 7'200}), grpc::UNAVAILABLE},
      {"NoCommonName", authority_.Issue({std::nullopt}), grpc::UNAUTHENTICATED},
      {"Nobodys", authority_.Issue({"eve's laptop"}), grpc::UNAUTHENTICATED},
      {"OtherCase", authority_.Issue({"Ann's Laptop"}), grpc::UNAUTHENTICATED},
      {"Longer", authority_.Issue({"ann's laptop "}), grpc::UNAUTHENTICATED},
  };
  for (const Case& c : cases) {
    const grpc::Status status = Ask(c.client);
    EXPECT_EQ(status.error_code(), c.want) << c.name << ": " << status.error_message();
  }
}

TEST_F(TlsTest, TokensDoWithoutCertificatesWhereTheseAreOptional) {
  config_.tls_client_certificates = "optional";
  StartWithAnn();
  const std::string token = MakeToken("ann", Role::kOperator).secret;
  v1::ServerInfoResponse info;
  EXPECT_TRUE(Ask(std::nullopt, token, &info).ok());
  EXPECT_EQ(info.role(), "operator");
  EXPECT_EQ(Ask(std::nullopt).error_code(), grpc::UNAUTHENTICATED);
  // A certificate that is presented must be valid, even when it is optional.
  TestAuthority foreign("the authority");
  EXPECT_EQ(Ask(foreign.Issue({"ann's laptop"}), token).error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(Ask(authority_.Issue({"ann's laptop"}), "hpvm_" + std::string(64, '0')).error_code(),
            grpc::UNAUTHENTICATED);
}

// The setup of docs/OPERATIONS.md: no client certificates are requested, so no authorities are configured.
TEST_F(TlsTest, TokensDoWithoutAnyClientAuthority) {
  config_.tls_client_certificates = "none";
  config_.tls_client_ca = "";
  config_.auth_certificates = false;
  StartWithAnn();
  const std::string token = MakeToken("ann", Role::kOperator).secret;
  v1::ServerInfoResponse info;
  EXPECT_TRUE(Ask(std::nullopt, token, &info).ok());
  EXPECT_EQ(info.role(), "operator");
  EXPECT_EQ(Ask(std::nullopt).error_code(), grpc::UNAUTHENTICATED);
}

// Headers about a certificate or a connection have no effect, including those that proxies use.
TEST_F(TlsTest, NobodySaysByHeadersWhoTheyAre) {
  config_.tls_client_certificates = "optional";
  StartWithAnn();
  ASSERT_TRUE(Ask(authority_.Issue({"ann's laptop"})).ok());
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authority_.certificate();
  const auto channel = grpc::CreateChannel(daemon_->addresses().front(), grpc::SslCredentials(options));
  for (const char* name : {"x509_common_name", "x-ssl-client-cn", "x-forwarded-client-cert", "x-forwarded-for", "peer",
                           "hpvm-peer", "transport_security_type"}) {
    for (const char* value : {"ann's laptop", "CN=ann's laptop", "unix-abstract:hpvmd-connection-1", "unix:", "ssl"}) {
      const auto context = With("");
      context->AddMetadata(name, value);
      v1::ServerInfoResponse info;
      EXPECT_EQ(v1::Hpvm::NewStub(channel)->ServerInfo(context.get(), v1::ServerInfoRequest(), &info).error_code(),
                grpc::UNAUTHENTICATED)
          << name << ": " << value;
    }
  }
}

TEST_F(TlsTest, NothingInPlainText) {
  StartWithAnn();
  v1::ServerInfoResponse info;
  const auto context = With(MakeToken("ann", Role::kAdmin).secret);
  EXPECT_EQ(Info(*context, &info).error_code(), grpc::UNAVAILABLE);  // The fixture's channel has no TLS.
}

// New connections get a renewed certificate, without a restart.
TEST_F(TlsTest, CertificatesAreRenewedInPlace) {
  StartWithAnn();
  const CertifiedKey client = authority_.Issue({"ann's laptop"});
  TestAuthority next("the next authority");
  EXPECT_EQ(Ask(client, "", nullptr, next.certificate()).error_code(), grpc::UNAVAILABLE);
  WriteServer(next.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"}));
  EXPECT_TRUE(Eventually([&] { return Ask(client, "", nullptr, next.certificate()).ok(); }));
}

// Unusable files do not end TLS: the previous pair stays until they are usable.
TEST_F(TlsTest, KeepsTheLastGoodPair) {
  config_.tls_client_certificates = "optional";
  config_.auth_certificates = false;
  config_.metrics_listen = "127.0.0.1:0";
  StartWithAnn();
  const std::string token = MakeToken("ann", Role::kUser).secret;
  ASSERT_TRUE(Ask(std::nullopt, token).ok());
  TestAuthority next("the next authority");
  const CertifiedKey renewed = next.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"});
  const CertifiedKey old = authority_.Issue({"hpvmd", -7'200, -3'600, "127.0.0.1"});
  struct Case {
    const char* name;
    CertifiedKey files;
    mode_t key_mode;
  };
  const Case cases[] = {
      {"KeyOfAnother", {renewed.certificate, old.key}, 0600},
      {"OpenKey", renewed, 0644},
      {"Ended", old, 0600},
      {"NoCertificate", {"", renewed.key}, 0600},
      {"NoKey", {renewed.certificate, "no key"}, 0600},
  };
  for (const Case& c : cases) {
    Write(config_.tls_key, c.files.key, c.key_mode);
    Write(config_.tls_certificate, c.files.certificate);
    std::this_thread::sleep_for(std::chrono::milliseconds(1'400));  // More than one check of the files.
    const grpc::Status status = Ask(std::nullopt, token);
    EXPECT_TRUE(status.ok()) << c.name << ": " << status.error_message();
  }
  WriteServer(renewed);
  EXPECT_TRUE(Eventually([&] { return Ask(std::nullopt, token, nullptr, next.certificate()).ok(); }));
}

class CertificateObserver final : public Observer {
 public:
  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::CertificateLoaded& event) {
    std::lock_guard lock(mutex_);
    loads_.emplace_back(event.status, event.not_after_unix_s);
  }
  std::vector<std::pair<Status, int64_t>> loads() {
    std::lock_guard lock(mutex_);
    return loads_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Status, int64_t>> loads_;
};

// Each change is reported once, with the expiry of the certificate in force.
TEST_F(TlsTest, TellsOfEachChangeOnce) {
  CertificateObserver observer;
  Diagnostics faults;
  TlsFiles first = ReadTlsFiles(config_, &faults);
  ASSERT_TRUE(faults.empty()) << ToString(faults);
  const int64_t first_end = first.not_after_unix_s;
  EXPECT_NEAR(static_cast<double>(first_end), static_cast<double>(time(nullptr)) + 3'600, 60);
  EXPECT_EQ(first.subject, "CN=hpvmd");
  TlsWatch watch(config_, std::move(first), observer);
  EXPECT_TRUE(watch.TakeChanged().has_value());
  EXPECT_FALSE(watch.TakeChanged().has_value());
  const CertifiedKey renewed = authority_.Issue({"hpvmd", -3'600, 7'200, "127.0.0.1"});
  Write(config_.tls_key, renewed.key);  // The other half is still to come.
  ASSERT_TRUE(Eventually([&] { return observer.loads().size() == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2'400));  // At least two checks of the files.
  ASSERT_EQ(observer.loads().size(), 2u);
  EXPECT_THAT(Message(observer.loads()[1].first), HasSubstr("does not belong to the certificate"));
  EXPECT_EQ(observer.loads()[1].second, first_end);
  EXPECT_FALSE(watch.TakeChanged().has_value());
  Write(config_.tls_certificate, renewed.certificate);
  ASSERT_TRUE(Eventually([&] { return observer.loads().size() == 3; }));
  EXPECT_TRUE(observer.loads()[2].first.ok());
  EXPECT_GT(observer.loads()[2].second, first_end + 3'000);
  const std::optional<TlsFiles> taken = watch.TakeChanged();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->key, renewed.key);
}

// Key and chain in one file: one rename changes both.
TEST_F(TlsTest, OneFileHoldsKeyAndChain) {
  config_.tls_client_certificates = "optional";
  config_.tls_key = config_.tls_certificate;
  const auto write = [this](const CertifiedKey& server, mode_t mode = 0600) {
    Write(config_.tls_certificate, server.key + server.certificate + authority_.certificate(), mode);
  };
  write(authority_.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"}));
  StartWithAnn();
  const std::string token = MakeToken("ann", Role::kUser).secret;
  EXPECT_TRUE(Ask(std::nullopt, token).ok());
  TestAuthority next("the next authority");
  write(next.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"}));
  EXPECT_TRUE(Eventually([&] { return Ask(std::nullopt, token, nullptr, next.certificate()).ok(); }));
  write(next.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"}), 0644);
  Diagnostics faults;
  ReadTlsFiles(config_, &faults);
  EXPECT_THAT(ToString(faults), HasSubstr("may be read by others"));
}

// Unusable files are refused with their names, all at once.
TEST_F(TlsTest, ChecksItsFiles) {
  const auto check = [this] {
    Diagnostics faults;
    ReadTlsFiles(config_, &faults);
    return ToString(faults);
  };
  EXPECT_EQ(check(), "");
  const CertifiedKey server = authority_.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"});
  for (const mode_t mode : {0604u, 0602u, 0620u, 0601u}) {
    Write(config_.tls_key, server.key, mode);
    EXPECT_THAT(check(), HasSubstr("may be read by others"));
  }
  Write(config_.tls_key, server.key, 0640);
  EXPECT_THAT(check(), HasSubstr("does not belong to the certificate"));
  Write(config_.tls_certificate, server.certificate, 0644);
  EXPECT_EQ(check(), "");
  Write(config_.tls_certificate, server.certificate + authority_.certificate(), 0644);
  EXPECT_EQ(check(), "");
  Write(config_.tls_certificate, server.certificate + authority_.certificate().substr(0, 200), 0644);
  EXPECT_THAT(check(), HasSubstr("Certificate 2 of the file"));
  WriteServer(authority_.Issue({"hpvmd", -7'200, -3'600}));
  EXPECT_THAT(check(), HasSubstr("has expired"));
  WriteServer(authority_.Issue({"hpvmd", 3'600, 7'200}));
  EXPECT_THAT(check(), HasSubstr("not valid yet"));
  Write(config_.tls_certificate, "no certificate");
  EXPECT_THAT(check(), HasSubstr("has no certificate"));
  WriteServer({server.certificate, "no key"});
  EXPECT_THAT(check(), HasSubstr("has no private key"));
  WriteServer(server);
  Write(config_.tls_client_ca, "");
  EXPECT_THAT(check(), HasSubstr("tls.client_ca"));
  std::filesystem::remove(config_.tls_client_ca);
  std::filesystem::remove(config_.tls_key);
  Write(config_.tls_certificate, "no certificate");
  EXPECT_THAT(check(), AllOf(HasSubstr("ca.pem"), HasSubstr("server.key"), HasSubstr("has no certificate")));
}

// A key that everybody may read prevents the start of a daemon.
TEST_F(TlsTest, RefusesToStartWithOpenKeys) {
  chmod(config_.tls_key.c_str(), 0644);
  const StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config_);
  EXPECT_EQ(daemon.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hpvm::server
