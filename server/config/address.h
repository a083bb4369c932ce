// SPDX-License-Identifier: Apache-2.0
// Addresses of the configuration: those where the daemon listens, and those it calls.
#ifndef HPVMD_SERVER_CONFIG_ADDRESS_H_
#define HPVMD_SERVER_CONFIG_ADDRESS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hpvm::server {

struct ListenAddress {
  bool is_unix = false;
  std::string target;  // A path, or host:port.
  // True when other machines may reach the address; server/config/config_access.h says what that requires.
  bool is_public = false;
};
// Splits and checks server.listen.
StatusOr<std::vector<ListenAddress>> ParseListen(std::string_view text);

struct HostPort {
  std::string host;  // Without brackets.
  std::string port;
};
// The address must not be a path.
HostPort SplitHostPort(const ListenAddress& address);
// Parses metrics.listen: one "host:port".
StatusOr<ListenAddress> ParseMetricsListen(std::string_view text);

struct HttpTarget {
  std::string host, port;
  std::string path;  // "" or "/prefix".
};
// Parses tracing.endpoint: "http://host:port", "http://[::1]:4318/prefix". Refuses other schemes, user names and
// queries.
StatusOr<HttpTarget> ParseHttpTarget(std::string_view url);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_ADDRESS_H_
