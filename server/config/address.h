// SPDX-License-Identifier: Apache-2.0
// Addresses of the configuration: where the daemon listens, and whom it calls.
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
  // Other machines may reach it: what that needs is the configuration's to say (server/config/config_access.h).
  bool is_public = false;
};
// Splits and checks server.listen.
StatusOr<std::vector<ListenAddress>> ParseListen(std::string_view text);

struct HostPort {
  std::string host;  // Without brackets.
  std::string port;
};
// Of an address that is no path.
HostPort SplitHostPort(const ListenAddress& address);
// metrics.listen: one "host:port", of loopback: nobody is asked there who they are.
StatusOr<HostPort> ParseMetricsListen(std::string_view text);

struct HttpTarget {
  std::string host, port;
  std::string path;  // "" or "/prefix".
};
// tracing.endpoint: "http://host:port", "http://[::1]:4318/prefix". Not with other schemes, user names or queries.
StatusOr<HttpTarget> ParseHttpTarget(std::string_view url);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_ADDRESS_H_
