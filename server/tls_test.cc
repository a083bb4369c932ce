// SPDX-License-Identifier: Apache-2.0
// TLS over the wire: who is known by a certificate, and who does not get in.
#include "server/tls.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "server/testing/access_fixture.h"
#include "server/testing/test_certificates.h"

namespace hpvm {
namespace {

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

  void StartWithAnn() {
    Start();
    v1::Tenant ann;
    ann.set_name("ann");
    ann.add_certificate_names("ann's laptop");
    ASSERT_TRUE(daemon_->directory().CreateTenant(ann, 10).ok());
  }

  // ServerInfo with that certificate, if any, over a connection of its own.
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

  TestAuthority foreign("the authority");  // Of the same name, with another key.
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
  // What is shown must be right, be it ever so optional.
  TestAuthority foreign("the authority");
  EXPECT_EQ(Ask(foreign.Issue({"ann's laptop"}), token).error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(Ask(authority_.Issue({"ann's laptop"}), "hpvm_" + std::string(64, '0')).error_code(),
            grpc::UNAUTHENTICATED);
}

TEST_F(TlsTest, NothingInPlainText) {
  StartWithAnn();
  v1::ServerInfoResponse info;
  const auto context = With(MakeToken("ann", Role::kAdmin).secret);
  EXPECT_EQ(Info(*context, &info).error_code(), grpc::UNAVAILABLE);  // The fixture's channel has no TLS.
}

// A renewed certificate is shown to connections that come, without a restart.
TEST_F(TlsTest, CertificatesAreRenewedInPlace) {
  StartWithAnn();
  const CertifiedKey client = authority_.Issue({"ann's laptop"});
  TestAuthority next("the next authority");
  EXPECT_EQ(Ask(client, "", nullptr, next.certificate()).error_code(), grpc::UNAVAILABLE);
  WriteServer(next.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"}));
  bool is_new = false;
  for (int i = 0; i < 300 && !is_new; ++i) {
    is_new = Ask(client, "", nullptr, next.certificate()).ok();
    std::this_thread::sleep_for(std::chrono::milliseconds(is_new ? 0 : 100));
  }
  EXPECT_TRUE(is_new);
}

// What could not be served with is refused at the start, with the file's name.
TEST_F(TlsTest, ChecksItsFiles) {
  EXPECT_TRUE(CheckTlsFiles(config_).ok());
  const auto refuses = [this](absl::StatusCode code, const char* text) {
    const Status status = CheckTlsFiles(config_);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(Message(status), HasSubstr(text));
  };
  const CertifiedKey server = authority_.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"});
  for (const mode_t mode : {0604u, 0602u, 0620u, 0601u}) {
    Write(config_.tls_key, server.key, mode);
    refuses(absl::StatusCode::kFailedPrecondition, "may be read by others");
  }
  Write(config_.tls_key, server.key, 0640);
  refuses(absl::StatusCode::kInvalidArgument, "does not belong to the certificate");
  Write(config_.tls_certificate, server.certificate, 0644);
  EXPECT_TRUE(CheckTlsFiles(config_).ok());
  Write(config_.tls_certificate, authority_.Issue({"hpvmd", -7'200, -3'600}).certificate);
  refuses(absl::StatusCode::kInvalidArgument, "does not belong");
  const CertifiedKey old = authority_.Issue({"hpvmd", -7'200, -3'600});
  WriteServer(old);
  refuses(absl::StatusCode::kFailedPrecondition, "has expired");
  Write(config_.tls_certificate, "no certificate");
  refuses(absl::StatusCode::kInvalidArgument, "has no certificate");
  WriteServer({server.certificate, "no key"});
  refuses(absl::StatusCode::kInvalidArgument, "has no private key");
  WriteServer(server);
  Write(config_.tls_client_ca, "");
  refuses(absl::StatusCode::kInvalidArgument, "tls.client_ca");
  std::filesystem::remove(config_.tls_client_ca);
  refuses(absl::StatusCode::kNotFound, "ca.pem");
  std::filesystem::remove(config_.tls_key);
  refuses(absl::StatusCode::kNotFound, "server.key");
}

// A key that everybody may read does not even start a daemon.
TEST_F(TlsTest, RefusesToStartWithOpenKeys) {
  chmod(config_.tls_key.c_str(), 0644);
  const StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config_);
  EXPECT_EQ(daemon.status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace hpvm
