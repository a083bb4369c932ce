// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/scrape_access.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "base/hash.h"
#include "base/io/fd.h"

namespace hpvm::server {
namespace {

constexpr size_t kSecretBytesMin = 16, kSecretBytesMax = 1024;
constexpr std::string_view kBlanks = " \t\r\n", kScheme = "Bearer ";

}  // namespace

StatusOr<std::string> ReadScrapeSecret(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::array<char, kSecretBytesMax + 1> bytes;
  const ssize_t count = file.valid() ? read(file.get(), bytes.data(), bytes.size()) : -1;
  if (count < 0) {
    return FromErrno(errno, "Reading \"" + path + "\" (metrics.token_file)");
  }
  std::string_view text(bytes.data(), static_cast<size_t>(count));
  const size_t first = text.find_first_not_of(kBlanks);
  text = first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
  if (text.size() < kSecretBytesMin || text.size() > kSecretBytesMax) {
    return InvalidArgument("The secret in \"" + path + "\" (metrics.token_file) has " + std::to_string(text.size()) +
                           " characters; " + std::to_string(kSecretBytesMin) + " to " +
                           std::to_string(kSecretBytesMax) + " are allowed.");
  }
  return std::string(text);
}

StatusOr<bool> MaySeeTenants(std::string_view authorization, const Config& config, const Authenticator& authenticator,
                             bool is_open) {
  const bool has_file = !config.metrics_token_file.empty();
  if (authorization.empty() || (is_open && !has_file)) {
    return is_open && !has_file;
  }
  if (has_file && authorization.starts_with(kScheme)) {
    const StatusOr<std::string> secret = ReadScrapeSecret(config.metrics_token_file);
    // Hashes are compared in constant time, whatever the lengths.
    if (secret.ok() && ConstantTimeEqual(HashOf(*secret), HashOf(authorization.substr(kScheme.size())))) {
      return true;
    }
  }
  if (is_open) {
    return Unauthenticated("The secret is not that of metrics.token_file.");
  }
  // The endpoint is on loopback, or served over TLS.
  const CallFacts facts{.peer = "ipv4:127.0.0.1:0",
                        .authorization = {authorization},
                        .certificate_names = {},
                        .is_encrypted = false,
                        .wanted_tenants = {}};
  const StatusOr<Principal> caller = authenticator.Authenticate(facts, config);
  if (absl::IsUnavailable(caller.status())) {
    return caller.status();
  }
  if (!caller.ok()) {
    return Unauthenticated(
        "The credentials are neither the secret of metrics.token_file nor an administrator's token.");
  }
  return caller->role == Role::kAdmin;
}

}  // namespace hpvm::server
