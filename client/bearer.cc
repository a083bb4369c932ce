// SPDX-License-Identifier: Apache-2.0
#include "client/bearer.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "client/files/input_file.h"
#include "client/ticket.h"

namespace hpvm {
namespace {

constexpr size_t kTokenDigits = 64;
constexpr std::string_view kTokenPrefix = "hpvm_";

bool IsHex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// Bearer without credentials.
class NoBearer final : public Bearer {
 public:
  explicit NoBearer(bool has_certificate) : has_certificate_(has_certificate) {}
  StatusOr<std::string> Current(Duration) override { return std::string(); }
  bool Renew(std::string_view, Duration) override { return false; }
  std::string Describe() const override { return ""; }
  std::string Advice() const override {
    return has_certificate_ ? "A tenant must list the certificate's common name (hpvmctl tenant set TENANT "
                              "--add-certificate-name NAME, by an administrator)."
                            : "Give a token (hpvmctl --token-file FILE, $HPVM_TOKEN_FILE) or a certificate (--cert, "
                              "--key).";
  }

 private:
  const bool has_certificate_;
};

constexpr char kTokenAdvice[] =
    "The token may have expired or been revoked; an administrator of the server makes another (hpvmctl token create).";

class FixedToken final : public Bearer {
 public:
  explicit FixedToken(std::string token) : token_(std::move(token)) {}
  StatusOr<std::string> Current(Duration) override { return token_; }
  bool Renew(std::string_view, Duration) override { return false; }
  std::string Describe() const override { return "the token that was given"; }
  std::string Advice() const override { return kTokenAdvice; }

 private:
  const std::string token_;
};

// Identifies one version of a file.
struct FileState {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = -1;
  int64_t changed_ns = 0;
  friend bool operator==(const FileState&, const FileState&) = default;
};

FileState StateOf(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return {};  // A pipe can be read only once.
  }
  return {facts.st_dev, facts.st_ino, facts.st_size,
          static_cast<int64_t>(facts.st_mtim.tv_sec) * 1'000'000'000 + facts.st_mtim.tv_nsec};
}

// TokenFile follows its file, because tokens are replaced while programs run. When the file vanishes or is half
// written, the previous token stays.
class TokenFile final : public Bearer {
 public:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}

  Status Read() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ReadLocked();
  }
  StatusOr<std::string> Current(Duration) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (StateOf(path_) != state_) {
      ReadLocked().IgnoreError();
    }
    return token_;
  }
  bool Renew(std::string_view used, Duration) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_.size >= 0) {
      ReadLocked().IgnoreError();
    }
    return token_ != used;
  }
  std::string Describe() const override { return "the token of the file " + Quoted(path_); }
  std::string Advice() const override { return kTokenAdvice; }

 private:
  Status ReadLocked() {
    const FileState state = StateOf(path_);
    HPVMD_ASSIGN_OR_RETURN(const std::string text, ReadInputText(path_, 4096));
    HPVMD_ASSIGN_OR_RETURN(token_, While(ParseToken(text), "reading the token file " + Quoted(path_)));
    state_ = state;
    return absl::OkStatus();
  }

  const std::string path_;
  std::mutex mutex_;
  std::string token_;  // Guarded by mutex_, like state_.
  FileState state_;
};

bool IsLoopback(const std::string& host) {
  in_addr address{};
  return host == "localhost" || host == "::1" ||
         (inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127);
}

Status CheckWays(const Endpoint& endpoint, const Credentials& credentials) {
  if (!endpoint.unix_path.empty() && credentials.WantsTls()) {
    return InvalidArgument("TLS and certificates are for TCP; " + Quoted(endpoint.target) +
                           " is a Unix socket, which the system guards.");
  }
  if (credentials.certificate_file.empty() != credentials.key_file.empty()) {
    return InvalidArgument(credentials.key_file.empty()
                               ? "A certificate (" + Quoted(credentials.certificate_file) + ") needs its private key."
                               : "A private key (" + Quoted(credentials.key_file) + ") needs its certificate.");
  }
  const bool has_token = !credentials.token.empty() || !credentials.token_file.empty();
  if (has_token && !endpoint.IsPrivate()) {
    return InvalidArgument("A token would travel to " + Quoted(endpoint.target) +
                           " in clear, where others can read it; use https:// or name the server's authority (--ca).");
  }
  return absl::OkStatus();
}

}  // namespace

bool Endpoint::IsPrivate() const { return tls || !unix_path.empty() || IsLoopback(host); }

StatusOr<Endpoint> ParseEndpoint(std::string_view text, const Credentials& credentials) {
  Endpoint endpoint;
  endpoint.tls = credentials.WantsTls();
  endpoint.target = std::string(text);
  if (text.starts_with("unix:")) {
    std::string_view path = text.substr(5);
    if (path.starts_with("//")) {
      path.remove_prefix(2);
    }
    if (path.empty()) {
      return InvalidArgument("The server's address " + Quoted(text) + " has no path after \"unix:\".");
    }
    endpoint.unix_path = std::string(path);
    HPVMD_RETURN_IF_ERROR(CheckWays(endpoint, credentials));
    endpoint.tls = false;
    return endpoint;
  }
  const bool is_https = text.starts_with("https://"), is_http = text.starts_with("http://");
  if (is_http && endpoint.tls) {
    return InvalidArgument("The server's address " + Quoted(text) +
                           " says that there is no TLS (http), and certificates were given; write https://.");
  }
  endpoint.tls = endpoint.tls || is_https;
  if (is_https || is_http) {
    text.remove_prefix(is_https ? 8 : 7);
    if (text.ends_with('/')) {
      text.remove_suffix(1);
    }
  } else if (text.starts_with("dns:///")) {
    text.remove_prefix(7);
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size() ||
      text.find('/') != std::string_view::npos) {
    return InvalidArgument("The server's address " + Quoted(endpoint.target) +
                           " is neither unix:/path nor host:port nor https://host:port.");
  }
  endpoint.host = std::string(text.substr(0, colon));
  if (endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  endpoint.target = std::string(text);
  HPVMD_RETURN_IF_ERROR(CheckWays(endpoint, credentials));
  return endpoint;
}

StatusOr<std::unique_ptr<Bearer>> MakeBearer(const Credentials& credentials, const Endpoint& endpoint) {
  if (!credentials.token.empty()) {
    HPVMD_ASSIGN_OR_RETURN(std::string token, While(ParseToken(credentials.token), "reading the token that was given"));
    return std::make_unique<FixedToken>(std::move(token));
  }
  if (!credentials.token_file.empty()) {
    auto file = std::make_unique<TokenFile>(credentials.token_file);
    HPVMD_RETURN_IF_ERROR(file->Read());
    return std::unique_ptr<Bearer>(std::move(file));
  }
  if (!endpoint.unix_path.empty() && credentials.ticket) {
    return MakeTicketBearer(endpoint.unix_path + ".auth", RealClock());
  }
  return std::make_unique<NoBearer>(credentials.HasCertificate());
}

StatusOr<std::string> ParseToken(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) {
    return InvalidArgument("The token is empty.");
  }
  text = text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
  if (text.starts_with("Bearer ") || text.starts_with("bearer ")) {
    return InvalidArgument("The token begins with the word \"Bearer\"; give the token alone.");
  }
  if (text.starts_with("-----BEGIN")) {
    return InvalidArgument("This is a certificate or a key (PEM), not a token.");
  }
  if (!text.starts_with(kTokenPrefix)) {
    return InvalidArgument(
        "This is not a token: a token begins with \"hpvm_\", and there are 64 hexadecimal digits "
        "after it.");
  }
  const std::string_view digits = text.substr(kTokenPrefix.size());
  if (digits.size() != kTokenDigits || !std::all_of(digits.begin(), digits.end(), IsHex)) {
    return InvalidArgument("The token is damaged: after \"hpvm_\" there are " + std::to_string(digits.size()) +
                           " characters, and a token has 64 hexadecimal digits there.");
  }
  return std::string(text);
}

}  // namespace hpvm
