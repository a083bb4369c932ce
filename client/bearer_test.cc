// SPDX-License-Identifier: Apache-2.0
// Tests of a client's credentials: tokens, files, tickets, certificates, and that none of them ever appears in an
// error.
#include "client/bearer.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "client/channel.h"
#include "client/ticket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/client.h"
#include "hpvm/v1/service.grpc.pb.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/x509.h"

namespace hpvm {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

const std::string kDigits(64, 'a');
const std::string kToken = "hpvm_" + kDigits;
const std::string kOther = "hpvm_" + std::string(64, 'b');

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/hpvm-credentials-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::trunc) << text;
    return Path(name);
  }

 private:
  std::string path_;
};

// Blanks around a token are accepted; any other text is refused, with none of its characters in the error.
TEST(Tokens, AreParsed) {
  struct Case {
    const char* name;
    std::string text, want;  // `want` is the token, or a part of the error.
    bool ok = false;
  };
  const std::string secret = "s3cr3t-" + std::string(20, 'x');
  const Case cases[] = {
      {"plain", kToken, kToken, true},
      {"newline", kToken + "\n", kToken, true},
      {"blanks", " \t" + kToken + " \r\n", kToken, true},
      {"empty", "", "is empty"},
      {"blanks only", " \n\n", "is empty"},
      {"with scheme", "Bearer " + kToken, "the token alone"},
      {"a key", "-----BEGIN PRIVATE KEY-----\n" + secret, "PEM"},
      {"another thing", secret, "not a token"},
      {"cut off", "hpvm_" + secret, "27 characters"},
      {"two", kToken + "\n" + kToken, "damaged"},
      {"control character", "hpvm_" + std::string(63, 'a') + "\x1b", "damaged"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const StatusOr<std::string> token = ParseToken(c.text);
    ASSERT_EQ(token.ok(), c.ok) << token.status();
    if (c.ok) {
      EXPECT_EQ(*token, c.want);
      continue;
    }
    EXPECT_EQ(token.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(token.status()), HasSubstr(c.want));
    EXPECT_THAT(Message(token.status()), Not(HasSubstr(secret)));
    EXPECT_THAT(Message(token.status()), Not(HasSubstr(kDigits)));
  }
}

TEST(Endpoints, AreParsed) {
  struct Case {
    const char* text;
    Credentials credentials;
    const char* target;  // Empty when refused.
    bool tls = false;
    const char* error = "";
  };
  const Credentials token{.token = kToken}, ca{.ca_file = "/ca.pem"};
  const Case cases[] = {
      {"unix:/run/x.sock", {}, "unix:/run/x.sock"},
      {"unix:///run/x.sock", token, "unix:///run/x.sock"},
      {"127.0.0.1:50061", token, "127.0.0.1:50061"},
      {"[::1]:50061", token, "[::1]:50061"},
      {"localhost:50061", token, "localhost:50061"},
      {"http://127.0.0.1:1/", {}, "127.0.0.1:1"},
      {"https://host.example:50061", token, "host.example:50061", true},
      {"host.example:50061", ca, "host.example:50061", true},
      {"host.example:50061", {}, "host.example:50061"},
      {"host.example:50061", token, "", false, "in clear"},
      {"128.0.0.1:1", token, "", false, "in clear"},
      {"127.0.0.1.example:1", token, "", false, "in clear"},
      {"http://host.example:1", ca, "", false, "write https://"},
      {"unix:/x", ca, "", false, "is a Unix socket"},
      {"unix:", {}, "", false, "no path"},
      {"host", {}, "", false, "neither"},
      {"https://host:1/path", {}, "", false, "neither"},
      {"", {}, "", false, "neither"},
      {"h:1", {.certificate_file = "c"}, "", false, "needs its private key"},
      {"h:1", {.key_file = "k"}, "", false, "needs its certificate"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const StatusOr<Endpoint> endpoint = ParseEndpoint(c.text, c.credentials);
    if (*c.target == '\0') {
      ASSERT_FALSE(endpoint.ok());
      EXPECT_THAT(Message(endpoint.status()), HasSubstr(c.error));
      continue;
    }
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(endpoint->target, c.target);
    EXPECT_EQ(endpoint->tls, c.tls);
  }
}

// A token's file may be replaced at any time; when it is gone or half written, the previous token stays.
TEST(TokenFiles, AreFollowed) {
  const Folder folder;
  const std::string path = folder.Write("token", kToken + "\n");
  StatusOr<std::unique_ptr<Bearer>> bearer = MakeBearer({.token_file = path}, {});
  ASSERT_TRUE(bearer.ok()) << bearer.status();
  EXPECT_EQ((*bearer)->Current(seconds(1)).value(), kToken);
  EXPECT_FALSE((*bearer)->Renew(kToken, seconds(1)));
  folder.Write("new", kOther);
  std::filesystem::rename(folder.Path("new"), path);
  EXPECT_EQ((*bearer)->Current(seconds(1)).value(), kOther);
  EXPECT_TRUE((*bearer)->Renew(kToken, seconds(1)));
  folder.Write("token", "");
  EXPECT_EQ((*bearer)->Current(seconds(1)).value(), kOther);
  std::filesystem::remove(path);
  EXPECT_EQ((*bearer)->Current(seconds(1)).value(), kOther);
  EXPECT_THAT((*bearer)->Describe(), HasSubstr(path));
}

TEST(TokenFiles, WrongOnesAreNamed) {
  const Folder folder;
  const auto message = [](const std::string& path) { return Message(MakeBearer({.token_file = path}, {}).status()); };
  EXPECT_THAT(message(folder.Path("none")), HasSubstr(folder.Path("none")));
  EXPECT_THAT(message(folder.Path("")), HasSubstr("is a folder"));
  EXPECT_THAT(message(folder.Write("empty", "\n")), HasSubstr("is empty"));
  EXPECT_THAT(message(folder.Write("large", std::string(5000, 'x'))), HasSubstr("5000 bytes; at most 4096"));
}

// TicketServer is a server's ticket socket that answers each caller with the next line.
class TicketServer {
 public:
  TicketServer(const std::string& path, std::function<std::string(int)> line) : line_(std::move(line)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    thread_ = std::thread([this] {
      for (int client = accept(fd_, nullptr, nullptr); client >= 0; client = accept(fd_, nullptr, nullptr)) {
        const std::string text = line_(++asked);
        EXPECT_EQ(send(client, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
        close(client);
      }
    });
  }
  ~TicketServer() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  std::atomic<int> asked = 0;

 private:
  const std::function<std::string(int)> line_;
  int fd_ = -1;
  std::thread thread_;
};

TEST(Tickets, AreFetchedOnceAndRenewed) {
  const Folder folder;
  ManualClock clock;
  TicketServer server(folder.Path("s.auth"), [](int n) { return "hpvmt_" + std::to_string(n) + " 100\n"; });
  const std::unique_ptr<Bearer> bearer = MakeTicketBearer(folder.Path("s.auth"), clock);
  EXPECT_EQ(bearer->Describe(), "");
  EXPECT_EQ(server.asked, 0);
  EXPECT_EQ(bearer->Current(seconds(5)).value(), "hpvmt_1");
  clock.Advance(seconds(74));
  EXPECT_EQ(bearer->Current(seconds(5)).value(), "hpvmt_1");
  clock.Advance(seconds(2));  // The last quarter of its lifetime.
  EXPECT_EQ(bearer->Current(seconds(5)).value(), "hpvmt_2");
  EXPECT_TRUE(bearer->Renew("hpvmt_1", seconds(5)));
  EXPECT_EQ(server.asked, 2) << "what was refused is not what there is";
  EXPECT_TRUE(bearer->Renew("hpvmt_2", seconds(5)));
  EXPECT_EQ(bearer->Current(seconds(5)).value(), "hpvmt_3");
  EXPECT_THAT(bearer->Describe(), HasSubstr("user id " + std::to_string(geteuid())));
  EXPECT_THAT(bearer->Describe() + bearer->Advice(), Not(HasSubstr("hpvmt_")));
}

// A user id that belongs to no tenant: the error names the user id and advises to assign it to a tenant.
TEST(Tickets, ARefusedUserIdIsNamed) {
  const Folder folder;
  TicketServer server(folder.Path("s.auth"), [](int) { return "error: User id 7 belongs to no tenant.\n"; });
  const std::unique_ptr<Bearer> bearer = MakeTicketBearer(folder.Path("s.auth"), RealClock());
  EXPECT_EQ(bearer->Current(seconds(5)).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(bearer->Describe(), HasSubstr("user id " + std::to_string(geteuid())));
  EXPECT_THAT(bearer->Advice(), HasSubstr("--add-uid"));
}

TEST(Tickets, WithoutASocketThereIsNone) {
  const Folder folder;
  const std::unique_ptr<Bearer> bearer = MakeTicketBearer(folder.Path("none.auth"), RealClock());
  EXPECT_EQ(bearer->Current(seconds(1)).value(), "");
  EXPECT_EQ(bearer->Describe(), "");
  EXPECT_FALSE(bearer->Renew("", seconds(1)));
}

TEST(Tickets, StrangeAnswersAreRefused) {
  struct Case {
    const char* name;
    std::string line;
    absl::StatusCode code;
    const char* want;
  };
  const Case cases[] = {
      {"a reason", "error: User id 7 is no tenant's.\n", absl::StatusCode::kUnauthenticated, "User id 7"},
      {"nothing", "", absl::StatusCode::kUnavailable, "without an answer"},
      {"no line", "hpvmt_x", absl::StatusCode::kUnavailable, "without an answer"},
      {"a token", kToken + "\n", absl::StatusCode::kDataLoss, "is not hpvmd"},
      {"a control character", "hpvmt_\x01 5\n", absl::StatusCode::kDataLoss, "is not hpvmd"},
      {"endless", std::string(6000, 'x'), absl::StatusCode::kDataLoss, "longer than"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Folder folder;
    TicketServer server(folder.Path("s"), [&](int) { return c.line; });
    const StatusOr<Ticket> ticket = FetchTicket(folder.Path("s"), seconds(5));
    ASSERT_FALSE(ticket.ok());
    EXPECT_EQ(ticket.status().code(), c.code);
    EXPECT_THAT(Message(ticket.status()), HasSubstr(c.want));
    EXPECT_THAT(Message(ticket.status()), Not(HasSubstr(kDigits)));
  }
}

struct Pair {
  std::string certificate, key;
};

// Makes a self-signed certificate for `name` that expires `seconds_left` from now.
Pair MakePair(const char* name, long seconds_left) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), -1'000);
  X509_gmtime_adj(X509_getm_notAfter(certificate), seconds_left);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  const auto text = [](auto write) {
    BIO* bio = BIO_new(BIO_s_mem());
    write(bio);
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string pem(data, static_cast<size_t>(size));
    BIO_free(bio);
    return pem;
  };
  Pair pair{text([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); }),
            text([&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); })};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

TEST(TlsFilesTest, AreChecked) {
  const Folder folder;
  const Pair good = MakePair("a", 3600), other = MakePair("b", 3600), old = MakePair("c", -10);
  const std::string ca = folder.Write("ca.pem", good.certificate), cert = folder.Write("c.pem", good.certificate),
                    key = folder.Write("k.pem", good.key), wrong_key = folder.Write("k2.pem", other.key),
                    old_cert = folder.Write("c3.pem", old.certificate), old_key = folder.Write("k3.pem", old.key),
                    locked = folder.Write("k4.pem",
                                          "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIG\n"
                                          "-----END ENCRYPTED PRIVATE KEY-----\n");
  struct Case {
    const char* name;
    Credentials credentials;
    const char* error;  // Empty when accepted.
  };
  const Case cases[] = {
      {"all", {.ca_file = ca, .certificate_file = cert, .key_file = key}, ""},
      {"authority alone", {.ca_file = ca}, ""},
      {"system's", {.tls = true}, ""},
      {"another's key", {.ca_file = ca, .certificate_file = cert, .key_file = wrong_key}, "does not belong"},
      {"swapped", {.ca_file = ca, .certificate_file = key, .key_file = cert}, "holds a private key"},
      {"a certificate as key", {.ca_file = ca, .certificate_file = cert, .key_file = cert}, "no private key"},
      {"an encrypted key", {.ca_file = ca, .certificate_file = cert, .key_file = locked}, "encrypted"},
      {"expired", {.ca_file = ca, .certificate_file = old_cert, .key_file = old_key}, "has expired"},
      {"no such file", {.ca_file = folder.Path("none")}, "none"},
      {"not PEM", {.ca_file = folder.Write("x", "hello")}, "no certificate in PEM"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Status status = ReadTlsFiles(c.credentials).status();
    EXPECT_EQ(status.ok(), *c.error == '\0') << status;
    EXPECT_THAT(Message(status), HasSubstr(c.error));
  }
}

// Gate accepts one bearer and records what it was sent.
class Gate final : public v1::Hpvm::Service {
 public:
  grpc::Status ServerInfo(grpc::ServerContext* context, const v1::ServerInfoRequest*,
                          v1::ServerInfoResponse*) override {
    const auto& metadata = context->client_metadata();
    const auto found = metadata.find("authorization");
    const std::string got = found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
    ++calls;
    return got == "Bearer " + known ? grpc::Status::OK : grpc::Status(code, "The credential is not known.");
  }
  std::string known;
  grpc::StatusCode code = grpc::StatusCode::UNAUTHENTICATED;
  std::atomic<int> calls = 0;
};

class CallTest : public testing::Test {
 protected:
  CallTest() : endpoint_("unix:" + folder_.Path("s.sock")) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&gate_);
    server_ = builder.BuildAndStart();
  }
  Status Ask(const Credentials& credentials) {
    StatusOr<std::unique_ptr<Client>> client = Client::Connect({.endpoint = endpoint_, .credentials = credentials});
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? (*client)->ServerInfo().status() : client.status();
  }

  const Folder folder_;
  const std::string endpoint_;
  Gate gate_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(CallTest, CarriesTheToken) {
  gate_.known = kToken;
  EXPECT_TRUE(Ask({.token = kToken}).ok());
  EXPECT_TRUE(Ask({.token_file = folder_.Write("t", kToken + "\n")}).ok());
  EXPECT_EQ(gate_.calls, 2);
}

// A refusal names the kind of credentials and what to do, and never shows the secret.
TEST_F(CallTest, ExplainsRefusals) {
  const std::string file = folder_.Write("t", kOther);
  const Status known = Ask({.token_file = file});
  EXPECT_EQ(known.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(Message(known), HasSubstr(file));
  EXPECT_THAT(Message(known), HasSubstr("hpvmctl token create"));
  EXPECT_THAT(Message(known), Not(HasSubstr(std::string(64, 'b'))));
  EXPECT_EQ(gate_.calls, 1) << "the same token is not tried twice";
  EXPECT_THAT(Message(Ask({})), HasSubstr("carried no credential. Give a token"));
  gate_.code = grpc::StatusCode::PERMISSION_DENIED;
  EXPECT_THAT(Message(Ask({.token_file = file})), HasSubstr("hpvmctl whoami"));
}

TEST_F(CallTest, FetchesATicketAgainWhenRefused) {
  gate_.known = "hpvmt_2";
  TicketServer tickets(folder_.Path("s.sock.auth"), [](int n) { return "hpvmt_" + std::to_string(n) + "\n"; });
  EXPECT_TRUE(Ask({}).ok());
  EXPECT_EQ(tickets.asked, 2);
  EXPECT_EQ(gate_.calls, 2);
  // Renewed once only: when the renewed ticket is refused as well, the caller is unknown.
  EXPECT_EQ(Ask({}).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(tickets.asked, 4);
  // A token takes precedence over a ticket.
  gate_.known = kToken;
  EXPECT_TRUE(Ask({.token = kToken}).ok());
  EXPECT_EQ(tickets.asked, 4);
}

}  // namespace
}  // namespace hpvm
