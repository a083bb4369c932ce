// SPDX-License-Identifier: Apache-2.0
#include "server/config/address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/number.h"

namespace hpvm::server {
namespace {

bool IsLoopback(std::string_view host) {
  if (host == "localhost" || host == "::1") {
    return true;
  }
  in_addr address;
  return inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

StatusOr<ListenAddress> ParseAddress(std::string_view text) {
  const std::string quoted = "\"" + std::string(text) + "\"";
  if (text.starts_with("unix:")) {
    std::string_view path = text.substr(5);
    if (path.starts_with("//")) {
      path.remove_prefix(2);
    }
    if (path.empty() || path[0] != '/') {
      return InvalidArgument("The listen address (" + quoted + ") needs an absolute path after \"unix:\".");
    }
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return InvalidArgument("The listen address's path has " + std::to_string(path.size()) +
                             " bytes; a Unix socket's is limited to " +
                             std::to_string(sizeof(sockaddr_un::sun_path) - 1) + ".");
    }
    return ListenAddress{true, std::string(path), /*is_public=*/false};
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return InvalidArgument("The listen address (" + quoted + ") is neither unix:/path nor host:port.");
  }
  if (!ParseNumber<uint16_t>(text.substr(colon + 1)).has_value()) {
    return InvalidArgument("The listen address (" + quoted + ") has no port from 0 to 65535 after the colon.");
  }
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) {
    return InvalidArgument("The listen address (" + quoted + ") has no host before the colon.");
  }
  return ListenAddress{false, std::string(text), /*is_public=*/!IsLoopback(host)};
}

}  // namespace

StatusOr<std::vector<ListenAddress>> ParseListen(std::string_view text) {
  std::vector<ListenAddress> addresses;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view one = text.substr(0, comma);
    while (!one.empty() && one.front() == ' ') {
      one.remove_prefix(1);
    }
    while (!one.empty() && one.back() == ' ') {
      one.remove_suffix(1);
    }
    HPVMD_ASSIGN_OR_RETURN(ListenAddress address, ParseAddress(one));
    addresses.push_back(std::move(address));
    if (comma == std::string_view::npos) {
      return addresses;
    }
    text.remove_prefix(comma + 1);
  }
}

HostPort SplitHostPort(const ListenAddress& address) {
  const size_t colon = address.target.rfind(':');
  HostPort parts{address.target.substr(0, colon), address.target.substr(colon + 1)};
  if (parts.host.starts_with('[') && parts.host.ends_with(']')) {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  }
  return parts;
}

StatusOr<ListenAddress> ParseMetricsListen(std::string_view text) {
  if (text.find(',') != std::string_view::npos) {
    return InvalidArgument("Metrics are served on one address; \"" + std::string(text) + "\" names several.");
  }
  HPVMD_ASSIGN_OR_RETURN(ListenAddress address, ParseAddress(text));
  if (address.is_unix) {
    return InvalidArgument("Metrics are served over TCP; \"" + address.target + "\" is a path.");
  }
  return address;
}

StatusOr<HttpTarget> ParseHttpTarget(std::string_view url) {
  const auto refuse = [&](const char* why) {
    return InvalidArgument("The address (\"" + std::string(url.substr(0, 200)) + "\") " + why +
                           "; it has the form http://host:port.");
  };
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    return refuse("does not begin with http://");
  }
  if (std::any_of(url.begin(), url.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    return refuse("has blanks or other characters that an address may not have");
  }
  if (url.find_first_of("@?#\\") != std::string_view::npos) {
    return refuse("has a user name, a query or a fragment");
  }
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  HttpTarget target;
  target.path = slash == std::string_view::npos ? "" : std::string(rest.substr(slash));
  while (target.path.ends_with('/')) {
    target.path.pop_back();
  }
  rest = rest.substr(0, slash);
  const size_t bracket = rest.rfind(']'), colon = rest.rfind(':');
  const bool has_port = colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  target.port = has_port ? std::string(rest.substr(colon + 1)) : "4318";
  std::string_view host = rest.substr(0, has_port ? colon : std::string_view::npos);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of("[]:") != std::string_view::npos) {
    return refuse("has no host in the form of a name, an IPv4 address or [an IPv6 address]");
  }
  target.host = std::string(host);
  if (target.host.empty() || target.host.size() > 253) {
    return refuse("has no host");
  }
  if (ParseNumber<uint16_t>(target.port).value_or(0) == 0) {
    return refuse("has no port from 1 to 65535");
  }
  return target;
}

}  // namespace hpvm::server
